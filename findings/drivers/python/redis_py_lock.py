"""redis.lock.Lock of redis-py. The first argument says who shares a Lock object: none (an object for each grant) or process (one
for each name, thread_local=False)."""
import sys

import redis
from redis.exceptions import LockError
from redis.lock import Lock as Library

from lockchaos import client, serve

SHARED = sys.argv[1] == "process"


class Lock:
    hello = {"name": "redis-py", "version": redis.__version__, "promises": {"extend": True, "release_tells": True}}

    def open(self, q):
        self.client, self.locks = client(q), {}

    def acquire(self, q):
        new = Library(self.client, q["lock"], timeout=q["lease_ms"] / 1000, thread_local=False)
        lock = self.locks.setdefault((q["lock"], q["lease_ms"]), new) if SHARED else new
        return lock if lock.acquire(blocking=False) else False

    def release(self, lock):
        if not SHARED and lock.local.token is None:
            return False  # it was released before
        token = lock.local.token
        try:
            lock.release()
        except LockError:
            return False
        except redis.RedisError:
            if not SHARED:
                lock.local.token = token  # so that the release can be tried again
            raise

    def extend(self, lock, seconds):
        try:
            lock.extend(seconds, replace_ttl=True)
        except LockError:
            return False


serve(Lock())
