"""RedLock of aiocache on its Redis cache: tasks of one event loop, as in an application that serves requests."""
import asyncio
import importlib.metadata
import threading

from aiocache import RedisCache
from aiocache.lock import RedLock

from wire import serve


class Lock:
    hello = {"name": "aiocache", "version": importlib.metadata.version("aiocache"), "keys": ["{name}-lock"]}

    def open(self, q):
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        host, port = q["servers"][0]["addr"].rsplit(":", 1)
        self.cache = RedisCache(endpoint=host, port=int(port), timeout=q["timeout_ms"] / 1000)

    def run(self, task):
        return asyncio.run_coroutine_threadsafe(task, self.loop).result()

    def acquire(self, q):
        lock = RedLock(self.cache, q["lock"], lease=q["lease_ms"] / 1000)
        self.run(lock.__aenter__())
        return lock

    def release(self, lock):
        self.run(lock.__aexit__(None, None, None))


serve(Lock())
