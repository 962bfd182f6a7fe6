import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicLong;
import org.redisson.Redisson;
import org.redisson.api.*;
import org.redisson.config.*;

/** Redisson's locks, with a watchdog of 1.5 s. Each owner is a thread id of its own. The argument says what an owner does once it was
 *  granted the lock: nothing, nested (in a write lock, take the read lock and give it back), or reenter (take it again, and give it back). */
public class RedissonLock extends Wire {
    record Hold(RLock lock, long thread) {}

    private final Map<String, Hold> holds = new ConcurrentHashMap<>();
    private final Map<String, Long> threads = new ConcurrentHashMap<>();
    private final AtomicLong next = new AtomicLong(1000);
    private final String then;
    private RedissonClient client;

    RedissonLock(String then) { this.then = then; }

    String hello() { return "\"name\":\"redisson\",\"promises\":{\"release_tells\":true,\"watchdog\":true}"; }

    void open(String q, List<String> servers) {
        Config c = new Config();
        c.setLockWatchdogTimeout(1500).setThreads(8).setNettyThreads(8);
        c.useSingleServer().setAddress(servers.get(0)).setConnectionMinimumIdleSize(4).setTimeout((int) number(q, "timeout_ms"));
        client = Redisson.create(c);
    }

    void answer(String op, String id, String q) {
        if (op.equals("release")) {
            Hold h = holds.get(text(q, "hold"));
            h.lock.unlockAsync(h.thread).whenComplete((x, e) -> {
                if (e == null) say(id, "\"result\":\"ok\""); else failed(id, e, true);
            });
            return;
        }
        String name = text(q, "lock");
        long lease = number(q, "lease_ms") == 0 ? -1 : number(q, "lease_ms");
        long thread = threads.computeIfAbsent(text(q, "owner"), x -> next.incrementAndGet());
        RLock lock = then.equals("nested") ? client.getReadWriteLock(name).writeLock() : client.getLock(name);
        RLock inner = then.equals("nested") ? client.getReadWriteLock(name).readLock() : lock;
        CompletionStage<Boolean> granted = lock.tryLockAsync(0, lease, TimeUnit.MILLISECONDS, thread);
        if (!then.equals("nothing")) {
            granted = granted.thenCompose(ok -> !ok ? CompletableFuture.completedFuture(false)
                : inner.tryLockAsync(0, lease, TimeUnit.MILLISECONDS, thread).thenCompose(x -> inner.unlockAsync(thread)).thenApply(x -> true));
        }
        granted.whenComplete((ok, e) -> {
            if (e != null) { failed(id, e, false); return; }
            if (!ok) { say(id, "\"result\":\"fail\",\"why\":\"taken\""); return; }
            holds.put("h" + id, new Hold(lock, thread));
            say(id, "\"result\":\"ok\",\"hold\":\"h" + id + "\"");
        });
    }

    public static void main(String[] args) throws Exception { new RedissonLock(args[0]).serve(); }
}
