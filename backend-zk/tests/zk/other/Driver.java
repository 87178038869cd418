import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.RetryOneTime;

/** Takes and gives locks of Curator as its input says: "ID KIND PATH" takes, "ID" gives. */
public class Driver {
    public static void main(String[] args) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(args[0], 10000, 10000, new RetryOneTime(100));
        client.start();
        client.blockUntilConnected();
        say("ready");
        Map<String, CountDownLatch> ends = new ConcurrentHashMap<>();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            if (words[0].equals("bench")) {
                bench(client, words[1], Integer.parseInt(words[2]));
                continue;
            }
            if (words.length == 1) {
                ends.get(words[0]).countDown();
                continue;
            }
            CountDownLatch end = new CountDownLatch(1);
            ends.put(words[0], end);
            // A lock belongs to the thread that took it.
            Thread thread = new Thread(() -> hold(lock(client, words[1], words[2]), words[0], end));
            thread.setDaemon(true);
            thread.start();
        }
        System.exit(0);
    }

    static InterProcessLock lock(CuratorFramework client, String kind, String path) {
        switch (kind) {
            case "read": return new InterProcessReadWriteLock(client, path).readLock();
            case "write": return new InterProcessReadWriteLock(client, path).writeLock();
            default: return new InterProcessMutex(client, path);
        }
    }

    static void hold(InterProcessLock lock, String id, CountDownLatch end) {
        try {
            lock.acquire();
            say(id + " held");
            end.await();
            lock.release();
            say(id + " released");
        } catch (Exception error) {
            say(id + " failed " + error);
        }
    }

    static void bench(CuratorFramework client, String path, int cycles) throws Exception {
        InterProcessMutex lock = new InterProcessMutex(client, path);
        long began = System.nanoTime();
        for (int n = 0; n < cycles; n++) {
            lock.acquire();
            lock.release();
        }
        say("bench " + (System.nanoTime() - began) / cycles);
    }

    static synchronized void say(String words) {
        System.out.println(words);
        System.out.flush();
    }
}
