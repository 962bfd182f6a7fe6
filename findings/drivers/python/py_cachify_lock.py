"""lock of py-cachify, with an expiration in whole seconds."""
import importlib.metadata
import math

from py_cachify import CachifyLockError, init_cachify, lock

from lockchaos import client, serve


class Lock:
    hello = {"name": "py-cachify", "version": importlib.metadata.version("py-cachify"), "keys": ["PYC-{name}"]}

    def open(self, q):
        init_cachify(sync_client=client(q))

    def acquire(self, q):
        held = lock(q["lock"], nowait=True, exp=math.ceil(q["lease_ms"] / 1000))
        try:
            return held.__enter__()
        except CachifyLockError:
            return False

    def release(self, held):
        held.__exit__(None, None, None)


serve(Lock())
