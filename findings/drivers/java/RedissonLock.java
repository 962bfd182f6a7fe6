import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicLong;
import org.redisson.*;
import org.redisson.api.*;
import org.redisson.config.*;

/** Redisson's locks, each owner a thread id of its own. The first argument is the kind: lock, spin, fair, fenced, write, rw, multi and red (on
 *  several servers), or permit. The second is what an owner does once it was granted the lock: nothing, nested (in a write lock, take the read
 *  lock and give it back), or reenter (take it again, and give it back); with waits, the library waits for a lock that is held. */
public class RedissonLock extends Lockchaos {
    /** How a hold ends, and is extended where the kind can be. */
    record Hold(Callable<CompletionStage<?>> release, RPermitExpirableSemaphore permits, String permit) {}

    private final Map<String, Hold> holds = new ConcurrentHashMap<>();
    private final Map<String, Long> threads = new ConcurrentHashMap<>();
    private final AtomicLong next = new AtomicLong(1000);
    private final List<RedissonClient> clients = new ArrayList<>();
    private final String kind, then;

    RedissonLock(String kind, String then) { this.kind = kind; this.then = then; }

    String hello() {
        boolean several = kind.equals("multi") || kind.equals("red"), permit = kind.equals("permit");
        List<String> promises = new ArrayList<>(List.of("\"release_tells\":" + !several));
        promises.add(permit ? "\"kind\":\"semaphore\",\"extend\":true" : "\"watchdog\":true");
        if (kind.equals("rw")) promises.add("\"kind\":\"rw\",\"downgrades\":true");
        if (kind.equals("fair") || then.equals("waits")) promises.add("\"wait\":true,\"fair\":" + kind.equals("fair"));
        if (kind.equals("fenced")) promises.add("\"token\":true");
        if (several) promises.add("\"quorum\":true");
        return "\"name\":\"redisson-" + kind + "\",\"watchdog_ms\":1500,\"promises\":{" + String.join(",", promises) + "}";
    }

    private RedissonClient client(String q, java.util.function.Function<Config, BaseConfig<?>> servers) {
        Config c = new Config();
        long watchdog = number(q, "watchdog_ms");
        c.setLockWatchdogTimeout(watchdog > 0 ? watchdog : 1500).setThreads(8).setNettyThreads(8);
        BaseConfig<?> b = servers.apply(c).setTimeout((int) number(q, "timeout_ms")).setConnectTimeout((int) number(q, "timeout_ms"));
        if (b instanceof SingleServerConfig s) s.setConnectionMinimumIdleSize(4);
        if (b instanceof BaseMasterSlaveServersConfig<?> m) m.setMasterConnectionMinimumIdleSize(4).setSlaveConnectionMinimumIdleSize(1);
        return Redisson.create(c);
    }

    void open(String q, List<String> servers) {
        String[] all = servers.toArray(new String[0]);
        switch (text(q, "topology")) {
            case "sentinel" -> clients.add(client(q, c -> c.useSentinelServers().setMasterName(text(q, "master")).addSentinelAddress(all)));
            case "cluster" -> clients.add(client(q, c -> c.useClusterServers().addNodeAddress(all)));
            default -> servers.forEach(at -> clients.add(client(q, c -> c.useSingleServer().setAddress(at))));
        }
    }

    private RLock lock(String name, String mode) {
        RedissonClient c = clients.get(0);
        RLock[] each = clients.stream().map(x -> x.getLock(name)).toArray(RLock[]::new);
        return switch (kind) {
            case "spin" -> c.getSpinLock(name);
            case "fair" -> c.getFairLock(name);
            case "fenced" -> c.getFencedLock(name);
            case "write" -> c.getReadWriteLock(name).writeLock();
            case "rw" -> "read".equals(mode) ? c.getReadWriteLock(name).readLock() : c.getReadWriteLock(name).writeLock();
            case "multi" -> new RedissonMultiLock(each);
            case "red" -> new RedissonRedLock(each);
            default -> c.getLock(name);
        };
    }

    void answer(String op, String id, String q) {
        Hold h = op.equals("acquire") ? null : holds.get(text(q, "hold"));
        try {
            switch (op) {
                case "release" -> said(id, h.release.call(), "");
                case "extend" -> said(id, h.permits.updateLeaseTimeAsync(h.permit, number(q, "lease_ms"), TimeUnit.MILLISECONDS), "");
                default -> acquire(id, q);
            }
        } catch (Exception e) {
            failed(id, e, !op.equals("acquire"));
        }
    }

    private void acquire(String id, String q) {
        String name = text(q, "lock"), hold = "h" + id;
        long lease = number(q, "lease_ms") == 0 ? -1 : number(q, "lease_ms"), wait = number(q, "wait_ms");
        if (kind.equals("permit")) {
            RPermitExpirableSemaphore s = clients.get(0).getPermitExpirableSemaphore(name);
            said(id, s.trySetPermitsAsync((int) number(q, "capacity")).thenCompose(x -> s.tryAcquireAsync(wait, lease, TimeUnit.MILLISECONDS)).thenApply(permit -> {
                if (permit != null) holds.put(hold, new Hold(() -> s.tryReleaseAsync(permit), s, permit));
                return permit != null;
            }), ",\"hold\":\"" + hold + "\"");
            return;
        }
        long thread = threads.computeIfAbsent(text(q, "owner"), x -> next.incrementAndGet());
        RLock lock = lock(name, text(q, "mode"));
        RLock inner = then.equals("nested") ? clients.get(0).getReadWriteLock(name).readLock() : lock;
        CompletionStage<?> granted = lock instanceof RFencedLock f ? ((RedissonFencedLock) f).tryLockAndGetTokenAsync(wait, lease, TimeUnit.MILLISECONDS, thread)
            : lock.tryLockAsync(wait, lease, TimeUnit.MILLISECONDS, thread);
        if (then.equals("nested") || then.equals("reenter")) {
            granted = granted.thenCompose(ok -> !Boolean.TRUE.equals(ok) ? CompletableFuture.completedFuture(false)
                : inner.tryLockAsync(0, lease, TimeUnit.MILLISECONDS, thread).thenCompose(x -> inner.unlockAsync(thread)).thenApply(x -> true));
        }
        said(id, granted.thenApply(got -> {
            if (got != null && !got.equals(false)) holds.put(hold, new Hold(() -> lock.unlockAsync(thread), null, null));
            return got == null ? false : got;
        }), ",\"hold\":\"" + hold + "\"");
    }

    /** Answers once it is known: false is a no, and a number the token of a grant. */
    private void said(String id, CompletionStage<?> done, String fields) {
        done.whenComplete((got, e) -> {
            if (e != null) failed(id, e, clients.size() == 1);
            else if (Boolean.FALSE.equals(got)) say(id, "\"result\":\"fail\",\"why\":\"the library says no\"");
            else say(id, "\"result\":\"ok\"" + fields + (got instanceof Long token ? ",\"token\":" + token : ""));
        });
    }

    public static void main(String[] args) throws Exception { new RedissonLock(args[0], args.length > 1 ? args[1] : "nothing").serve(); }
}
