"""The Redis backend of celery-once, of which QueueOnce asks raise_or_lock before a task is queued, and clear_lock when it returned."""
import importlib.metadata

from celery_once.backends.redis import AlreadyQueued, Redis

from lockchaos import serve


class Lock:
    hello = {"name": "celery-once", "version": importlib.metadata.version("celery-once"), "keys": ["qo_{name}"]}

    def open(self, q):
        self.backend = Redis({"url": "redis://%s/0?socket_timeout=%s" % (q["servers"][0]["addr"], q["timeout_ms"] / 1000)})

    def acquire(self, q):
        key = "qo_" + q["lock"]
        try:
            self.backend.raise_or_lock(key, q["lease_ms"] / 1000)
        except AlreadyQueued:
            return False
        return key

    def release(self, key):
        self.backend.clear_lock(key)


serve(Lock())
