import java.io.*;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.CompletionException;
import java.util.regex.*;

/** The driver protocol. A lock answers each request by say, whenever it can. */
abstract class Wire {
    private PrintStream out;

    abstract String hello();
    abstract void open(String q, List<String> servers);
    abstract void answer(String op, String id, String q);

    static String text(String line, String field) {
        Matcher m = Pattern.compile("\"" + field + "\":\\s*(?:\"([^\"]*)\"|(-?\\d+))").matcher(line);
        return m.find() ? m.group(1) != null ? m.group(1) : m.group(2) : null;
    }

    static long number(String line, String field) {
        String s = text(line, field);
        return s == null ? 0 : Long.parseLong(s);
    }

    void say(String id, String fields) {
        synchronized (out) {
            out.print("{\"re\":" + id + "," + fields + "}\n");
            out.flush();
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
        SocketChannel s = SocketChannel.open(UnixDomainSocketAddress.of(System.getenv("LOCKCHAOS_SOCKET")));
        out = new PrintStream(new BufferedOutputStream(Channels.newOutputStream(s)), false, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(Channels.newInputStream(s), StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            String id = text(line, "id"), op = text(line, "op");
            if (op.equals("hello")) {
                List<String> servers = new ArrayList<>();
                for (Matcher m = Pattern.compile("\"addr\":\\s*\"([^\"]+)\"").matcher(line); m.find(); ) servers.add("redis://" + m.group(1));
                if (!servers.isEmpty()) open(line, servers);
                say(id, "\"protocol\":1,\"language\":\"java\",\"parallel\":32,\"keys\":[\"{name}\"]," + hello());
            } else if (op.equals("ping")) {
                say(id, "\"result\":\"ok\"");
            } else {
                answer(op, id, line);
            }
        }
        Runtime.getRuntime().halt(0);
    }
}
