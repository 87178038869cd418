// Works under a lock that `lockwell hold` keeps: java Hold.java NAME STEPS

import java.io.BufferedReader;
import java.io.IOException;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

public class Hold {
    /** The lock was not free in time, or the server could not be used. */
    static class NotObtained extends Exception {
        final int status;

        NotObtained(String message, int status) {
            super(message);
            this.status = status;
        }
    }

    /** The lock is not held any more. Another may hold it. */
    static class Lost extends Exception {
        Lost(String message) {
            super(message);
        }
    }

    /** A lock that is held until it is closed. */
    static class Lock implements AutoCloseable {
        final CountDownLatch lost = new CountDownLatch(1);
        private final Process keeper;
        private final Writer input;
        private final BlockingQueue<Optional<String>> answers = new LinkedBlockingQueue<>();
        private volatile String why = "lockwell has ended";
        private long token;

        Lock(String name, String... options) throws IOException, InterruptedException, NotObtained {
            List<String> command = new ArrayList<>(List.of("lockwell", "hold", "--json"));
            command.addAll(List.of(options));
            command.addAll(List.of("--", name));
            keeper = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
            input = keeper.outputWriter(StandardCharsets.UTF_8);
            Thread reader = new Thread(this::read, "lockwell");
            reader.setDaemon(true);
            reader.start();
            Optional<String> told = answers.take();
            if (told.isEmpty() || !is(told.get(), "granted")) {
                int status = end();
                throw new NotObtained(told.map(line -> field(line, "message")).orElse(why), status);
            }
            token = Long.parseLong(field(told.get(), "token"));
        }

        long token() {
            return token;
        }

        /** For how many milliseconds the lock is held at least, from now. */
        long check() throws InterruptedException, Lost {
            long asked = System.nanoTime(); // before the question: the answer may be late
            say("check");
            String told = answers.take().orElseThrow(this::loss);
            long passed = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - asked) + 1;
            return Long.parseLong(field(told, "valid_ms")) - passed;
        }

        Lost loss() {
            return new Lost(why);
        }

        /** Frees the lock. It is an error if it was not held until now. */
        @Override
        public void close() throws Lost, InterruptedException {
            say("release");
            if (end() != 0) {
                throw loss();
            }
        }

        /** Reads all the time, in a thread of its own. */
        private void read() {
            try (BufferedReader output = keeper.inputReader(StandardCharsets.UTF_8)) {
                for (String line = output.readLine(); line != null; line = output.readLine()) {
                    if (is(line, "granted") || is(line, "held") || is(line, "refused")) {
                        answers.add(Optional.of(line));
                    } else if (is(line, "lost")) {
                        why = field(line, "message");
                        lost.countDown();
                    }
                }
            } catch (IOException error) {
                why = error.toString();
            }
            // At the end of the output the lock is not held any more, whatever the last line was.
            lost.countDown();
            answers.add(Optional.empty());
        }

        private void say(String line) {
            try {
                input.write(line + "\n");
                input.flush();
            } catch (IOException error) {
                // lockwell has ended: the reader says so.
            }
        }

        private int end() throws InterruptedException {
            try {
                input.close();
            } catch (IOException error) {
                // As above.
            }
            return keeper.waitFor();
        }

        private static boolean is(String line, String event) {
            return line.contains("\"event\":\"" + event + "\"");
        }

        /** A field of a line. The JDK has no JSON; use your library here. A name cannot look like a field: its quotes are escaped. */
        private static String field(String line, String name) {
            Matcher found = Pattern.compile("\"" + name + "\":(?:\"((?:[^\"\\\\]|\\\\.)*)\"|(\\d+))").matcher(line);
            if (!found.find()) {
                return "";
            }
            return found.group(1) != null ? found.group(1) : found.group(2);
        }
    }

    static void work(Lock lock, int steps) throws InterruptedException, Lost {
        System.out.println("granted with token " + lock.token());
        for (int step = 1; step <= steps; step++) {
            if (lock.check() < 200) {
                throw new Lost("the time that is left is too short for a step");
            }
            // The work of a step, which ends when the lock is lost.
            if (lock.lost.await(100, TimeUnit.MILLISECONDS)) {
                throw lock.loss();
            }
            System.out.println("step " + step + " of " + steps);
        }
    }

    public static void main(String[] args) throws Exception {
        try (Lock lock = new Lock(args[0], "--wait", "5s")) {
            work(lock, Integer.parseInt(args[1]));
        } catch (NotObtained error) {
            System.out.println("not obtained: " + error.getMessage());
            System.exit(error.status);
        } catch (Lost error) {
            System.out.println("lost: " + error.getMessage());
            System.exit(76);
        }
        System.out.println("released");
    }
}
