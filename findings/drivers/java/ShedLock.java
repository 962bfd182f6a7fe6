import java.time.*;
import java.util.*;
import net.javacrumbs.shedlock.core.*;
import net.javacrumbs.shedlock.provider.redis.spring.RedisLockProvider;
import org.springframework.data.redis.connection.*;
import org.springframework.data.redis.connection.lettuce.*;

/** ShedLock with Spring's Redis, without a time for which it is to hold a lock at least. With the argument safe, the provider is built with
 *  safeUpdate(true), in versions that have it. */
public class ShedLock extends Blocking {
    private final List<String> args;
    private LockProvider provider;

    ShedLock(String[] args) { this.args = Arrays.asList(args); }

    String hello() {
        return "\"name\":\"shedlock\",\"keys\":[\"job-lock:default:{name}\"],\"promises\":{}";
    }

    void open(String q, List<String> servers) {
        String[] at = servers.get(0).replace("redis://", "").split(":");
        LettuceConnectionFactory factory = new LettuceConnectionFactory(new RedisStandaloneConfiguration(at[0], Integer.parseInt(at[1])),
            LettuceClientConfiguration.builder().commandTimeout(Duration.ofMillis(number(q, "timeout_ms"))).build());
        factory.afterPropertiesSet();
        factory.start();
        RedisLockProvider.Builder b = new RedisLockProvider.Builder(factory);
        try {
            if (args.contains("safe")) b.getClass().getMethod("safeUpdate", boolean.class).invoke(b, true);
        } catch (ReflectiveOperationException e) {
            System.err.println("this version has no safeUpdate: " + e);
        }
        provider = b.build();
    }

    Grant acquire(String name, long lease) throws Exception {
        SimpleLock granted = provider.lock(new LockConfiguration(Instant.now(), name, Duration.ofMillis(lease), Duration.ZERO)).orElseThrow(() -> new No("taken"));
        return granted::unlock;
    }

    public static void main(String[] args) throws Exception { new ShedLock(args).serve(); }
}
