import java.time.Duration;
import java.util.*;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.locks.Lock;
import org.springframework.data.redis.connection.RedisStandaloneConfiguration;
import org.springframework.data.redis.connection.lettuce.*;
import org.springframework.integration.redis.util.RedisLockRegistry;

/** RedisLockRegistry of Spring Integration: a registry for each lease that is asked for, as its leases are its own. */
public class SpringIntegration extends Blocking {
    private final Map<Long, RedisLockRegistry> registries = new ConcurrentHashMap<>();
    private LettuceConnectionFactory factory;

    String hello() {
        return "\"name\":\"spring-integration\",\"keys\":[\"locks:{name}\"],\"promises\":{\"release_tells\":true}";
    }

    void open(String q, List<String> servers) {
        String[] at = servers.get(0).replace("redis://", "").split(":");
        factory = new LettuceConnectionFactory(new RedisStandaloneConfiguration(at[0], Integer.parseInt(at[1])),
            LettuceClientConfiguration.builder().commandTimeout(Duration.ofMillis(number(q, "timeout_ms"))).build());
        factory.afterPropertiesSet();
    }

    Grant acquire(String name, long lease) throws Exception {
        Lock lock = registries.computeIfAbsent(lease, l -> new RedisLockRegistry(factory, "locks", l)).obtain(name);
        if (!lock.tryLock()) throw new No("taken");
        return () -> {
            try {
                lock.unlock();
            } catch (IllegalStateException | ConcurrentModificationException e) { // it is over, or was released
                throw new No(e.getClass().getSimpleName());
            }
        };
    }

    public static void main(String[] args) throws Exception { new SpringIntegration().serve(); }
}
