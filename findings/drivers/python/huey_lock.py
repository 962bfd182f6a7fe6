"""lock_task of huey with a ttl, in whole seconds, on the storage that has one on each version of Redis."""
import importlib.metadata
import math

from huey import RedisExpireHuey
from huey.exceptions import TaskLockedException

from lockchaos import client, serve


class Lock:
    hello = {"name": "huey", "version": importlib.metadata.version("huey"), "keys": ["huey.r.jobs.jobs.lock.{name}"]}

    def open(self, q):
        self.huey = RedisExpireHuey("jobs", connection_pool=client(q).connection_pool)

    def acquire(self, q):
        lock = self.huey.lock_task(q["lock"], ttl=math.ceil(q["lease_ms"] / 1000))
        try:
            lock.acquire()
        except TaskLockedException:
            return False
        return lock

    def release(self, lock):
        lock.release()


serve(Lock())
