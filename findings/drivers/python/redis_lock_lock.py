"""redis_lock.Lock of python-redis-lock. A lock without a lease is one of 2 s with auto_renewal. The argument says what becomes of
leases of part of a second: floor (what the library does with them), or ceil."""
import math
import sys

import redis_lock
from redis_lock import NotAcquired

from lockchaos import client, serve


class Lock:
    hello = {"name": "python-redis-lock", "version": redis_lock.__version__, "keys": ["lock:{name}"],
             "promises": {"release_tells": True, "watchdog": True}}

    def open(self, q):
        self.client = client(q)

    def acquire(self, q):
        lease = q["lease_ms"] / 1000
        if sys.argv[1] == "ceil":
            lease = math.ceil(lease)
        lock = redis_lock.Lock(self.client, q["lock"], expire=lease or 2, auto_renewal=not lease)
        return lock if lock.acquire(blocking=False) else False

    def release(self, lock):
        try:
            lock.release()
        except NotAcquired:
            return False


serve(Lock())
