"""sherlock.RedisLock. The argument says what is given as expire: none (without a lease), float (as it is documented), or whole."""
import importlib.metadata
import math
import sys

from sherlock import LockException, RedisLock

from lockchaos import client, serve

EXPIRE = sys.argv[1]


class Lock:
    hello = {"name": "sherlock", "version": importlib.metadata.version("sherlock"),
             "promises": {"release_tells": True, "watchdog": EXPIRE == "none"}}

    def open(self, q):
        self.client = client(q)

    def acquire(self, q):
        lease = q["lease_ms"] / 1000
        expire = None if EXPIRE == "none" else lease if EXPIRE == "float" else math.ceil(lease)
        lock = RedisLock(q["lock"], client=self.client, expire=expire)
        return lock if lock.acquire(False) else False

    def release(self, lock):
        try:
            lock.release()
        except LockException:
            return False


serve(Lock())
