"""Aioredlock: one manager for each process, as its readme has it. A lock without a lease is one of 1.5 s with its watchdog."""
import asyncio
import importlib.metadata

from aioredlock import Aioredlock
from aioredlock.errors import LockAcquiringError

from lockchaos import addresses, serve


class Lock:
    hello = {"name": "aioredlock", "version": importlib.metadata.version("aioredlock"),
             "promises": {"extend": True, "watchdog": True}}

    async def open(self, q):
        self.wait = q["timeout_ms"] / 1000
        self.manager = Aioredlock(addresses(q), retry_count=1, internal_lock_timeout=1.5)

    async def acquire(self, q):
        try:
            return await asyncio.wait_for(self.manager.lock(q["lock"], lock_timeout=q["lease_ms"] / 1000 or None), self.wait)
        except LockAcquiringError:
            return False

    async def release(self, lock):
        await asyncio.wait_for(self.manager.unlock(lock), self.wait)

    async def extend(self, lock, seconds):
        try:
            await asyncio.wait_for(self.manager.extend(lock, seconds), self.wait)
        except (LockAcquiringError, RuntimeError):  # another client has it, or it was released
            return False


serve(Lock())
