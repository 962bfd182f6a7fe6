import com.alicp.jetcache.*;
import com.alicp.jetcache.redis.RedisCacheBuilder;
import com.alicp.jetcache.support.*;
import java.util.List;
import java.util.concurrent.TimeUnit;
import redis.clients.jedis.*;

/** The lock of a cache of JetCache, with Jedis. It asks once: after an error, tryLock asks three times whether it was granted. */
public class JetCache extends Blocking {
    private Cache<String, String> cache;

    String hello() { return "\"name\":\"jetcache\",\"keys\":[\"locks.{name}\"],\"promises\":{}"; }

    void open(String q, List<String> servers) {
        String[] at = servers.get(0).replace("redis://", "").split(":");
        JedisPoolConfig c = new JedisPoolConfig();
        c.setMaxTotal(32);
        cache = RedisCacheBuilder.createRedisCacheBuilder().keyPrefix("locks.").keyConvertor(k -> k)
            .valueEncoder(JavaValueEncoder.INSTANCE).valueDecoder(JavaValueDecoder.INSTANCE)
            .jedisPool(new JedisPool(c, at[0], Integer.parseInt(at[1]), (int) number(q, "timeout_ms"))).buildCache();
        cache.config().setTryLockLockCount(1);
    }

    Grant acquire(String name, long lease) throws Exception {
        AutoReleaseLock lock = cache.tryLock(name, lease, TimeUnit.MILLISECONDS);
        if (lock == null) throw new IllegalStateException("null, also after an error");
        return lock::close;
    }

    public static void main(String[] args) throws Exception { new JetCache().serve(); }
}
