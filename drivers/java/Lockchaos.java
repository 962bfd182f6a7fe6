import java.io.*;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.*;
import java.util.regex.*;

/** The driver protocol for a lock in Java, so that a driver is the lock and nothing else: copy this file beside it. A lock answers each
 *  request by say, whenever it can; one of which the calls block extends Blocking. */
abstract class Lockchaos {
    private SocketChannel out;

    abstract String hello();
    abstract void open(String q, List<String> servers);
    abstract void answer(String op, String id, String q);

    /** A client gave a request up, of which a driver that promises cancel takes heed. */
    void cancel(String id) {}

    static String text(String line, String field) {
        Matcher m = Pattern.compile("\"" + field + "\":\\s*(?:\"([^\"]*)\"|(-?\\d+))").matcher(line);
        return m.find() ? m.group(1) != null ? m.group(1) : m.group(2) : null;
    }

    static long number(String line, String field) {
        String s = text(line, field);
        return s == null ? 0 : Long.parseLong(s);
    }

    void say(String id, String fields) {
        ByteBuffer line = StandardCharsets.UTF_8.encode("{\"re\":" + id + "," + fields + "}\n");
        synchronized (out) { // and no stream of the channel, which would wait for the read that is under way
            try {
                while (line.hasRemaining()) out.write(line);
            } catch (IOException e) {
                // the run is over
            }
        }
    }

    /** An outcome that is not certain, unless the library says that the lock is not held. */
    void failed(String id, Throwable e, boolean certain) {
        while (e instanceof CompletionException && e.getCause() != null) e = e.getCause();
        String why = (e.getClass().getSimpleName() + ": " + e.getMessage()).replaceAll("[\"\\\\\\p{Cntrl}]", "'");
        say(id, "\"result\":\"" + (certain && e instanceof IllegalMonitorStateException ? "fail" : "info") + "\",\"why\":\""
            + why.substring(0, Math.min(300, why.length())) + "\"");
    }

    void serve() throws IOException {
        out = SocketChannel.open(UnixDomainSocketAddress.of(System.getenv("LOCKCHAOS_SOCKET")));
        BufferedReader in = new BufferedReader(new InputStreamReader(Channels.newInputStream(out), StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            String id = text(line, "id"), op = text(line, "op");
            if (op.equals("hello")) {
                List<String> servers = new ArrayList<>();
                for (Matcher m = Pattern.compile("\"addr\":\\s*\"([^\"]+)\"").matcher(line); m.find(); ) servers.add("redis://" + m.group(1));
                if (!servers.isEmpty()) open(line, servers);
                String version = System.getenv().getOrDefault("LOCKCHAOS_VERSION", "");
                say(id, "\"protocol\":2,\"language\":\"java\",\"version\":\"" + version + "\",\"parallel\":32," + hello());
            } else if (op.equals("ping")) {
                say(id, "\"result\":\"ok\"");
            } else if (op.equals("cancel")) {
                cancel(id);
            } else {
                answer(op, id, line);
            }
        }
        Runtime.getRuntime().halt(0);
    }
}

/** A lock of which the calls block: each grant has a thread of its own, since a library may remember which one was granted it. The
 *  thread of a request that its client gave up is interrupted. */
abstract class Blocking extends Lockchaos {
    /** What a library granted. Either throws No where the library says for certain that it is not held. */
    interface Grant {
        void release() throws Exception;
        default void extend(long lease) throws Exception { throw new UnsupportedOperationException(); }
    }

    static class No extends Exception {
        No(String why) { super(why); }
    }

    private record Hold(Grant grant, ExecutorService thread) {}

    private final Map<String, Hold> holds = new ConcurrentHashMap<>();
    private final Map<String, Thread> asked = new ConcurrentHashMap<>();

    /** Asks once, and throws No where it is another's. */
    abstract Grant acquire(String lock, long lease) throws Exception;

    void answer(String op, String id, String q) {
        long lease = number(q, "lease_ms");
        if (op.equals("release") || op.equals("extend")) {
            Hold h = holds.get(text(q, "hold"));
            h.thread.execute(() -> reply(id, () -> {
                if (op.equals("extend")) h.grant.extend(lease); else h.grant.release();
                return "";
            }));
            return;
        }
        if (!op.equals("acquire")) {
            say(id, "\"result\":\"unsupported\"");
            return;
        }
        ThreadPoolExecutor thread = new ThreadPoolExecutor(1, 1, 20, TimeUnit.SECONDS, new LinkedBlockingQueue<>());
        thread.allowCoreThreadTimeOut(true);
        thread.execute(() -> {
            asked.put(id, Thread.currentThread());
            reply(id, () -> {
                holds.put("h" + id, new Hold(acquire(text(q, "lock"), lease), thread));
                return ",\"hold\":\"h" + id + "\"";
            });
            asked.remove(id);
            Thread.interrupted(); // where the request was given up too late
        });
    }

    void cancel(String id) {
        asked.computeIfPresent(id, (k, thread) -> {
            thread.interrupt();
            return thread;
        });
    }

    private void reply(String id, Callable<String> call) {
        try {
            say(id, "\"result\":\"ok\"" + call.call());
        } catch (UnsupportedOperationException e) {
            say(id, "\"result\":\"unsupported\"");
        } catch (No e) {
            say(id, "\"result\":\"fail\",\"why\":\"" + e.getMessage() + "\"");
        } catch (Throwable e) {
            failed(id, e, false);
        }
    }
}
