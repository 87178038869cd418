import java.io.BufferedReader;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.Callable;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.function.IntFunction;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * Curator's InterProcessMutex under the workloads of `compare-bench --peers`.
 *
 * The orders and answers are those of the other peers; peers/rust/common/src/lib.rs describes them. Each task is a thread,
 * since a lock of Curator belongs to the thread that took it.
 */
public class Peer {
    private static final String SETUP = "an InterProcessMutex and a thread for each task, one CuratorFramework as it comes, "
            + "warmed up for a second";
    private static final String LACKS = "fencing tokens that it hands out";
    private static final long WARM_UP = 1_000_000_000L;

    /** What the boot clock is ahead of the clock that Java knows. */
    private static final long AHEAD = Long.parseLong(System.getenv("PEER_CLOCK_AHEAD"));

    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);

    private final CuratorFramework client;

    private Peer(CuratorFramework client) {
        this.client = client;
    }

    public static void main(String[] args) {
        int status = 0;
        try {
            serve();
        } catch (Exception error) {
            say("{\"error\": \"" + error.toString().replaceAll("[\\\\\"\\p{Cntrl}]", " ") + "\"}");
            status = 1;
        }
        System.exit(status);
    }

    private static void serve() throws Exception {
        String servers = System.getenv("PEER_URLS");
        CuratorFramework client = CuratorFrameworkFactory.newClient(servers, new ExponentialBackoffRetry(100, 3));
        client.start();
        client.blockUntilConnected();
        Peer peer = new Peer(client);
        peer.cycles("warm-" + ProcessHandle.current().pid(), 1, WARM_UP);
        say(String.format("{\"name\": \"curator\", \"version\": \"%s\", \"setup\": \"%s\", \"lacks\": \"%s\", \"now\": %d}",
                version(), SETUP, LACKS, now()));
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String order = orders.readLine(); order != null; order = orders.readLine()) {
            String[] words = order.split(" ");
            int tasks = Integer.parseInt(words[2]);
            switch (words[0]) {
                case "cycles":
                    say(peer.cycles(words[1], tasks, Long.parseLong(words[3])));
                    break;
                case "contend":
                    say(peer.contend(words[1], tasks, Long.parseLong(words[3]), Long.parseLong(words[4])));
                    break;
                default:
                    throw new IllegalArgumentException("what is " + order + "?");
            }
        }
    }

    /** Each task on a name of its own, again and again. */
    private String cycles(String name, int tasks, long length) throws Exception {
        Done latencies = together(tasks, task -> {
            InterProcessMutex lock = lock(name + "/" + task);
            return () -> {
                long began = System.nanoTime();
                StringBuilder spans = new StringBuilder();
                for (long start = System.nanoTime(); start - began < length; start = System.nanoTime()) {
                    lock.acquire();
                    lock.release();
                    spans.append(',').append(System.nanoTime() - start);
                }
                return spans.toString();
            };
        });
        return String.format("{\"latencies_ns\": [%s], \"elapsed_ns\": %d}", latencies.list, latencies.elapsed);
    }

    /** All tasks on one name. A turn is [task, asked, acquired, released]. */
    private String contend(String name, int tasks, long hold, long until) throws Exception {
        Done turns = together(tasks, task -> {
            // With one object for all, a release would wake all threads that wait here.
            InterProcessMutex lock = lock(name);
            return () -> {
                StringBuilder mine = new StringBuilder();
                for (long asked = now(); asked < until; asked = now()) {
                    lock.acquire();
                    long acquired = now();
                    if (hold > 0) {
                        Thread.sleep(hold / 1_000_000, (int) (hold % 1_000_000));
                    }
                    long released = now();
                    lock.release();
                    mine.append(String.format(",[%d,%d,%d,%d]", task, asked, acquired, released));
                }
                return mine.toString();
            };
        });
        return String.format("{\"turns\": [%s]}", turns.list);
    }

    /** What all tasks have written, and how long it took from their common start to the end of the last. */
    private record Done(String list, long elapsed) {}

    /** One thread for each task, which writes a list with a comma before each item. */
    private static Done together(int tasks, IntFunction<Callable<String>> work) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(tasks);
        try {
            CyclicBarrier start = new CyclicBarrier(tasks + 1);
            List<Future<String>> all = new ArrayList<>();
            for (int task = 0; task < tasks; task++) {
                Callable<String> one = work.apply(task);
                all.add(threads.submit(() -> {
                    start.await();
                    return one.call();
                }));
            }
            start.await();
            long began = System.nanoTime();
            StringBuilder list = new StringBuilder();
            for (Future<String> one : all) {
                list.append(one.get());
            }
            return new Done(list.isEmpty() ? "" : list.substring(1), System.nanoTime() - began);
        } finally {
            threads.shutdown();
        }
    }

    private InterProcessMutex lock(String name) {
        return new InterProcessMutex(client, "/compare_peers/" + name.replace('/', '_'));
    }

    /** The boot clock, which all processes of a host share. */
    private static long now() {
        return System.nanoTime() + AHEAD;
    }

    private static String version() throws Exception {
        String place = "/META-INF/maven/org.apache.curator/curator-recipes/pom.properties";
        Properties properties = new Properties();
        try (InputStream file = InterProcessMutex.class.getResourceAsStream(place)) {
            if (file != null) {
                properties.load(file);
            }
        }
        return properties.getProperty("version", "?");
    }

    private static void say(String line) {
        OUT.println(line);
        OUT.flush();
    }
}
