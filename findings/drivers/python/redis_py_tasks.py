"""redis.asyncio.lock.Lock of redis-py: one object for each name, which the tasks of a process share, with thread_local as it is by default."""
import redis
from redis.asyncio import Redis
from redis.asyncio.lock import Lock as Library
from redis.exceptions import LockError

from lockchaos import addresses, serve


class Lock:
    hello = {"name": "redis-py asyncio", "version": redis.__version__, "promises": {"extend": True, "release_tells": True}}

    async def open(self, q):
        (host, port), = addresses(q)
        wait = q["timeout_ms"] / 1000
        self.client, self.locks = Redis(host=host, port=port, socket_timeout=wait, socket_connect_timeout=wait), {}

    async def acquire(self, q):
        lock = self.locks.setdefault((q["lock"], q["lease_ms"]), Library(self.client, q["lock"], timeout=q["lease_ms"] / 1000))
        return lock if await lock.acquire(blocking=False) else False

    async def release(self, lock):
        try:
            await lock.release()
        except LockError:
            return False

    async def extend(self, lock, seconds):
        try:
            await lock.extend(seconds, replace_ttl=True)
        except LockError:
            return False


serve(Lock())
