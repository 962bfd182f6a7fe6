"""portalocker.RedisLock: a subscription that lives is the lock, which has no lease."""
import importlib.metadata

import portalocker

from lockchaos import client, serve


class Lock:
    hello = {"name": "portalocker", "version": importlib.metadata.version("portalocker"), "promises": {"watchdog": True}}

    def open(self, q):
        self.client = client(q, decode_responses=True, health_check_interval=1)

    def acquire(self, q):
        lock = portalocker.RedisLock(q["lock"], connection=self.client, timeout=0, fail_when_locked=True)
        try:
            lock.acquire()
        except portalocker.AlreadyLocked:
            return False
        return lock

    def release(self, lock):
        lock.release()


serve(Lock())
