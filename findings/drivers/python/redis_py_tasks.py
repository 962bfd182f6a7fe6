"""redis.asyncio.lock.Lock of redis-py: one object for each name, which the tasks of a process share, with thread_local as it is by default."""
import asyncio
import threading

import redis
from redis.asyncio import Redis
from redis.asyncio.lock import Lock as Library
from redis.exceptions import LockError

from wire import serve


class Lock:
    hello = {"name": "redis-py asyncio", "version": redis.__version__, "promises": {"extend": True, "release_tells": True}}

    def open(self, q):
        self.loop, self.locks = asyncio.new_event_loop(), {}
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        host, port = q["servers"][0]["addr"].rsplit(":", 1)
        wait = q["timeout_ms"] / 1000
        self.client = Redis(host=host, port=int(port), socket_timeout=wait, socket_connect_timeout=wait)

    def run(self, task):
        return asyncio.run_coroutine_threadsafe(task, self.loop).result()

    def acquire(self, q):
        lock = self.locks.setdefault((q["lock"], q["lease_ms"]), Library(self.client, q["lock"], timeout=q["lease_ms"] / 1000))
        return lock if self.run(lock.acquire(blocking=False)) else False

    def release(self, lock):
        try:
            self.run(lock.release())
        except LockError:
            return False

    def extend(self, lock, seconds):
        try:
            self.run(lock.extend(seconds, replace_ttl=True))
        except LockError:
            return False


serve(Lock())
