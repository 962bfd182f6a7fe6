"""RWLock of redis-rw-lock. It has no request that does not wait: a thread asks, and gives back a lock that it was granted too late."""
import importlib.metadata
import math
import threading

from redis_rw_lock import RWLock

from lockchaos import client, serve


class Lock:
    hello = {"name": "redis-rw-lock", "version": importlib.metadata.version("redis-rw-lock"),
             "keys": ["lock:lock:no_writers:{name}", "lock:lock:no_readers:{name}"], "promises": {"kind": "rw", "wait": True}}

    def open(self, q):
        self.client = client(q)

    def acquire(self, q):
        mode = RWLock.READ if q["mode"] == "read" else RWLock.WRITE
        lock = RWLock(self.client, q["lock"], mode, expire=60)
        done, late, both = threading.Event(), [], threading.Lock()

        def ask():
            lock.acquire()
            with both:
                done.set()
            if late:
                lock.release()

        threading.Thread(target=ask, daemon=True).start()
        done.wait(max(q["wait_ms"] / 1000, 0.2))
        with both:
            if not done.is_set():
                late.append(True)
                return False
        return lock

    def release(self, lock):
        lock.release()


serve(Lock())
