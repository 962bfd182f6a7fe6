"""RedLock of aiocache on its Redis cache: tasks of one event loop, as in an application that serves requests."""
import importlib.metadata

from aiocache import RedisCache
from aiocache.lock import RedLock

from lockchaos import addresses, serve


class Lock:
    hello = {"name": "aiocache", "version": importlib.metadata.version("aiocache"), "keys": ["{name}-lock"]}

    async def open(self, q):
        (host, port), = addresses(q)
        self.cache = RedisCache(endpoint=host, port=port, timeout=q["timeout_ms"] / 1000)

    async def acquire(self, q):
        lock = RedLock(self.cache, q["lock"], lease=q["lease_ms"] / 1000)
        await lock.__aenter__()
        return lock

    async def release(self, lock):
        await lock.__aexit__(None, None, None)


serve(Lock())
