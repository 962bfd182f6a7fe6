"""lock() of the client of redis-py, as it was up to 2.9 (a time is the value) and since 2.10 (a token is)."""
import redis

from lockchaos import addresses, serve

Refused = getattr(redis.exceptions, "LockError", ValueError)


class Lock:
    hello = {"name": "redis-py", "version": redis.__version__}

    def open(self, q):
        (host, port), = addresses(q)
        self.client = redis.StrictRedis(host=host, port=port, socket_timeout=q["timeout_ms"] / 1000)

    def acquire(self, q):
        lock = self.client.lock(q["lock"], timeout=q["lease_ms"] / 1000)
        return lock if lock.acquire(blocking=False) else False

    def release(self, lock):
        try:
            lock.release()
        except Refused:  # it was released before, or is not owned
            pass


serve(Lock())
