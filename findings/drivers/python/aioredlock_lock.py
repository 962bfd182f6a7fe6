"""Aioredlock: one manager for each process, as its readme has it. A lock without a lease is one of 1.5 s with its watchdog."""
import asyncio
import importlib.metadata
import threading

from aioredlock import Aioredlock
from aioredlock.errors import LockAcquiringError

from wire import serve


class Lock:
    hello = {"name": "aioredlock", "version": importlib.metadata.version("aioredlock"), "promises": {"extend": True, "watchdog": True}}

    def open(self, q):
        self.loop, self.wait = asyncio.new_event_loop(), q["timeout_ms"] / 1000
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        addresses = [s["addr"].rsplit(":", 1) for s in q["servers"]]
        self.manager = Aioredlock([(host, int(port)) for host, port in addresses], retry_count=1, internal_lock_timeout=1.5)

    def run(self, task):
        return asyncio.run_coroutine_threadsafe(asyncio.wait_for(task, self.wait), self.loop).result()

    def acquire(self, q):
        try:
            return self.run(self.manager.lock(q["lock"], lock_timeout=q["lease_ms"] / 1000 or None))
        except LockAcquiringError:
            return False

    def release(self, lock):
        self.run(self.manager.unlock(lock))

    def extend(self, lock, seconds):
        try:
            self.run(self.manager.extend(lock, seconds))
        except (LockAcquiringError, RuntimeError):  # another client has it, or it was released
            return False


serve(Lock())
