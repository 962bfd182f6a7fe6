import java.io.*;
import java.net.*;
import java.nio.charset.StandardCharsets;
import java.util.*;

/** A lock of SET NX PX and two scripts over a socket, on one server, for which a JDK is enough:
 *  javac -d classes Lockchaos.java SetNx.java, and lockchaos run --lock 'exec:java -cp classes SetNx'. */
class SetNx extends Blocking {
    static final String RELEASE = "if redis.call('GET',KEYS[1]) == ARGV[1] then return redis.call('DEL',KEYS[1]) end return 0";
    static final String EXTEND = "if redis.call('GET',KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE',KEYS[1],ARGV[2]) end return 0";

    private URI server;
    private int timeout;

    String hello() { return "\"name\":\"set-nx\",\"keys\":[\"{name}\"],\"promises\":{\"extend\":true,\"release_tells\":true}"; }

    void open(String q, List<String> servers) {
        server = URI.create(servers.get(0));
        timeout = (int) number(q, "timeout_ms");
    }

    Grant acquire(String lock, long lease) throws Exception {
        String token = UUID.randomUUID().toString();
        if (!ask("SET", lock, token, "NX", "PX", "" + lease).equals("+OK")) throw new No("taken");
        return new Grant() {
            public void release() throws Exception { held(ask("EVAL", RELEASE, "1", lock, token)); }
            public void extend(long lease) throws Exception { held(ask("EVAL", EXTEND, "1", lock, token, "" + lease)); }
        };
    }

    private static void held(String reply) throws No {
        if (!reply.equals(":1")) throw new No("not held");
    }

    /** Asks on a connection of its own, so that no late reply is taken for that of another request. */
    private String ask(String... words) throws IOException {
        try (Socket s = new Socket()) {
            s.connect(new InetSocketAddress(server.getHost(), server.getPort()), timeout);
            s.setSoTimeout(timeout);
            StringBuilder line = new StringBuilder("*" + words.length + "\r\n");
            for (String w : words) line.append("$" + w.getBytes(StandardCharsets.UTF_8).length + "\r\n" + w + "\r\n");
            s.getOutputStream().write(line.toString().getBytes(StandardCharsets.UTF_8));
            String reply = new BufferedReader(new InputStreamReader(s.getInputStream())).readLine();
            if (reply == null || reply.startsWith("-")) throw new IOException("" + reply);
            return reply;
        }
    }

    public static void main(String[] args) throws IOException { new SetNx().serve(); }
}
