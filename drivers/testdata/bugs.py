#!/usr/bin/python3
"""A driver over redis-py with the planted bug that its argument names, or with a correct lock."""
import os
import socket
import sys
import time
import uuid

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../python"))
from lockchaos import addresses, serve

BUG = sys.argv[1]
COMPARE = "if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('%s',KEYS[1]%s) end return 0"
RELEASE, EXTEND = COMPARE % ("DEL", ""), COMPARE % ("PEXPIRE", ",ARGV[2]")


class Kept(redis.Connection):
    """Stays open after a request that was given up, whose reply may still come."""

    def disconnect(self, *args):
        if not isinstance(sys.exc_info()[1], (socket.timeout, redis.TimeoutError)):
            super().disconnect(*args)


class OpenedOnce(redis.Connection):
    """A connection that is not opened again once it was closed."""

    def connect(self):
        if hasattr(self, "opened"):
            raise redis.ConnectionError("closed")
        super().connect()
        self.opened = True


class SelectsOnce(redis.Connection):
    """A connection to database 1 that is one to database 0 when it is opened again."""

    def on_connect(self):
        super().on_connect()
        if not hasattr(self, "selected"):
            self.selected = True
            self.send_command("SELECT", 1)
            self.read_response()


class Lock:
    hello = {"name": BUG, "promises": {"extend": True, "release_tells": True, "watchdog": BUG == "leased"}}

    def open(self, q):
        (host, port), wait = addresses(q)[0], q["timeout_ms"] / 1000
        self.client = redis.Redis(connection_pool=redis.ConnectionPool(
            {"desync": Kept, "select": SelectsOnce, "once": OpenedOnce}.get(BUG, redis.Connection),
            host=host, port=port, socket_timeout=wait, socket_connect_timeout=wait,
            retry=Retry(NoBackoff(), 10 if BUG == "persists" else 0), retry_on_timeout=BUG == "persists"))

    def acquire(self, q):
        time.sleep(1.5 if BUG == "late" else 0)
        if BUG == "silent":
            print("the library is there", file=sys.stderr)
            time.sleep(60)
        if BUG == "leased" and not q["lease_ms"]:
            raise ValueError("there is no watchdog")
        token, lease = uuid.uuid4().hex, q["lease_ms"] or 1000
        ends = {"px": lease}
        if BUG == "endless":
            ends = {}
        elif BUG == "wall":  # the end of the lease by the clock of this machine
            ends = {"pxat": int(time.time() * 1000) + lease}
        while not self.client.set(q["lock"], token, nx=True, **ends):
            if BUG == "vague":
                raise ValueError("taken")
            if BUG != "waits":
                return False
        return q["lock"], token, lease

    def release(self, held):
        time.sleep(1.5 if BUG == "late" else 0)
        return bool(self.client.eval(RELEASE, 1, *held[:2]))

    def extend(self, held, seconds):
        lease = held[2] if BUG == "same" else int(seconds * 1000)  # no bug, where it is said
        return bool(self.client.eval(EXTEND, 1, *held[:2], lease)) and {"valid_ms": held[2] // 4 if BUG == "deaf" else lease}


if BUG == "stays":
    os._exit = lambda status: time.sleep(60)
serve(Lock())
