import com.baomidou.lock.executor.RedisTemplateLockExecutor;
import com.baomidou.lock.spring.boot.autoconfigure.Lock4jProperties;
import java.time.Duration;
import java.util.*;
import org.springframework.data.redis.connection.RedisStandaloneConfiguration;
import org.springframework.data.redis.connection.lettuce.*;
import org.springframework.data.redis.core.StringRedisTemplate;

/** RedisTemplateLockExecutor of lock4j, with an expire of 1.5 s for a lock that asks for none, which it renews. */
public class Lock4j extends Blocking {
    private RedisTemplateLockExecutor locks;

    String hello() { return "\"name\":\"lock4j\",\"promises\":{\"release_tells\":true,\"watchdog\":true}"; }

    void open(String q, List<String> servers) {
        String[] at = servers.get(0).replace("redis://", "").split(":");
        LettuceConnectionFactory factory = new LettuceConnectionFactory(new RedisStandaloneConfiguration(at[0], Integer.parseInt(at[1])),
            LettuceClientConfiguration.builder().commandTimeout(Duration.ofMillis(number(q, "timeout_ms"))).build());
        factory.afterPropertiesSet();
        Lock4jProperties properties = new Lock4jProperties();
        properties.setExpire(1500L);
        locks = new RedisTemplateLockExecutor(new StringRedisTemplate(factory), properties);
    }

    Grant acquire(String name, long lease) throws Exception {
        String value = UUID.randomUUID().toString();
        if (locks.acquire(name, value, lease == 0 ? -1 : lease, 0) == null) throw new No("taken");
        return () -> {
            if (!locks.releaseLock(name, value, value)) throw new No("not held");
        };
    }

    public static void main(String[] args) throws Exception { new Lock4j().serve(); }
}
