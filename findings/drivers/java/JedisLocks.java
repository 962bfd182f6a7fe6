import com.github.jedis.lock.JedisLock;
import java.util.List;
import redis.clients.jedis.Jedis;

/** JedisLock of jedis-lock, asked once, with a connection for each call. */
public class JedisLocks extends Blocking {
    private String[] server;
    private int timeout;

    String hello() { return "\"name\":\"jedis-lock\",\"promises\":{}"; }

    void open(String q, List<String> servers) {
        server = servers.get(0).replace("redis://", "").split(":");
        timeout = (int) number(q, "timeout_ms");
    }

    interface Call<T> { T on(Jedis jedis) throws Exception; }

    private <T> T connected(Call<T> call) throws Exception {
        Jedis jedis = new Jedis(server[0], Integer.parseInt(server[1]), timeout);
        try {
            return call.on(jedis);
        } finally {
            jedis.disconnect();
        }
    }

    Grant acquire(String name, long lease) throws Exception {
        JedisLock lock = new JedisLock(name, 0, (int) lease);
        if (!connected(lock::acquire)) throw new No("taken");
        return () -> connected(jedis -> { lock.release(jedis); return true; });
    }

    public static void main(String[] args) throws Exception { new JedisLocks().serve(); }
}
