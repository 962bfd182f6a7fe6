"""Semaphore of redis-semaphore (PyPI) with one permit, which another client takes back after stale_client_timeout."""
import importlib.metadata

from redis_semaphore import NotAvailable, Semaphore

from lockchaos import client, serve


class Lock:
    hello = {"name": "redis-semaphore", "version": importlib.metadata.version("redis-semaphore"),
             "keys": ["{name}:AVAILABLE", "{name}:GRABBED", "{name}:EXISTS"], "promises": {"release_tells": True}}

    def open(self, q):
        self.client = client(q)

    def acquire(self, q):
        permit = Semaphore(self.client, 1, namespace=q["lock"], stale_client_timeout=q["lease_ms"] / 1000, blocking=False)
        try:
            permit.acquire()
        except NotAvailable:
            return False
        return permit

    def release(self, permit):
        if not permit.release():
            return False


serve(Lock())
