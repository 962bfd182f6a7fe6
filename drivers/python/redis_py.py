#!/usr/bin/python3
"""redis-py's Lock: lockchaos run --lock exec:drivers/python/redis_py.py

Since version 6 redis-py sends a request again by itself whose reply it lost, and a lock is then refused by its own key: the client
is told not to.
"""
import redis
from redis.backoff import NoBackoff
from redis.exceptions import LockError
from redis.lock import Lock as Library
from redis.retry import Retry

from lockchaos import client, serve


class Lock:
    hello = {"name": "redis-py", "version": redis.__version__, "promises": {"extend": True, "wait": True, "release_tells": True}}

    def open(self, q):
        self.client = client(q, retry=Retry(NoBackoff(), 0))

    def acquire(self, q):
        lock, wait = Library(self.client, q["lock"], timeout=q["lease_ms"] / 1000, thread_local=False), q["wait_ms"] / 1000
        return lock if lock.acquire(blocking=wait > 0, blocking_timeout=wait or None) else False

    def release(self, lock):
        token = lock.local.token
        if token is None:
            return False  # it was released before
        try:
            lock.release()
        except LockError:
            return False
        except redis.RedisError:
            lock.local.token = token  # which a Lock forgets when it asks, so that the release can be tried again
            raise

    def extend(self, lock, seconds):
        try:
            lock.extend(seconds, replace_ttl=True)
        except LockError:
            return False


serve(Lock())
