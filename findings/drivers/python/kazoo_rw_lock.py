"""ReadLock and WriteLock of kazoo, on ZooKeeper. The session of a process holds its locks."""
import importlib.metadata

from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout

from lockchaos import serve


class Lock:
    hello = {"name": "kazoo", "version": importlib.metadata.version("kazoo"),
             "promises": {"kind": "rw", "store": "zookeeper", "watchdog": True, "wait": True}}

    def open(self, q):
        self.client = KazooClient(",".join(s["addr"] for s in q["servers"]), timeout=2)
        self.client.start(timeout=30)

    def acquire(self, q):
        kind = self.client.ReadLock if q["mode"] == "read" else self.client.WriteLock
        lock, wait = kind("/locks/" + q["lock"]), q["wait_ms"] / 1000
        try:
            granted = lock.acquire(blocking=wait > 0, timeout=wait or None)
        except LockTimeout:
            return False
        return lock if granted else False

    def release(self, lock):
        if not lock.release():
            return False


serve(Lock())
