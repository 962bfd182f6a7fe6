#!/usr/bin/python3
"""A driver over redis-py with the planted bug that its argument names, or with a correct lock."""
import json
import os
import socket
import sys
import threading
import time
import uuid

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

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

firsts = {}  # the first lease of each hold


def answer(client, holds, q):
    if q["op"] == "ping":
        return {"result": "ok"}
    if q["op"] == "acquire":
        if BUG == "leased" and not q["lease_ms"]:
            return {"result": "info", "why": "there is no watchdog"}
        token, hold = uuid.uuid4().hex, "h%d" % q["id"]
        lease = q["lease_ms"] or 1000
        ends = {"px": lease}
        if BUG == "endless":
            ends = {}
        elif BUG == "wall":  # the end of the lease by the clock of this machine
            ends = {"pxat": int(time.time() * 1000) + lease}
        while not client.set(q["lock"], token, nx=True, **ends):
            if BUG == "waits":
                continue
            return {"result": "info" if BUG == "vague" else "fail", "why": "taken"}
        holds[hold] = q["lock"], token
        firsts[hold] = lease
        return {"result": "ok", "hold": hold}
    if q["op"] == "release":
        done = client.eval(RELEASE, 1, *holds[q["hold"]])
    elif q["op"] == "extend":
        lease = firsts[q["hold"]] if BUG == "same" else q["lease_ms"]  # no bug, where it is said
        if client.eval(EXTEND, 1, *holds[q["hold"]], lease):
            return {"result": "ok", "valid_ms": lease}
        done = False
    else:
        return {"result": "unsupported"}
    return {"result": "ok" if done else "fail"}


def main():
    conn = socket.socket(socket.AF_UNIX)
    conn.connect(os.environ["LOCKCHAOS_SOCKET"])
    lines, out = conn.makefile("r", encoding="utf-8"), conn.makefile("w", encoding="utf-8")
    holds, writing, client = {}, threading.Lock(), None

    def say(id, message):
        with writing:
            out.write(json.dumps(dict(message, re=id)) + "\n")
            out.flush()

    def serve(q):
        try:
            result = answer(client, holds, q)
        except redis.RedisError as e:
            result = {"result": "info", "why": str(e)}
        time.sleep(1.5 if BUG == "late" else 0)
        try:
            say(q["id"], result)
        except OSError:
            pass  # the run is over

    for line in lines:
        q = json.loads(line)
        if q["op"] != "hello":
            threading.Thread(target=serve, args=(q,), daemon=True).start()
            continue
        if q.get("servers"):
            host, port = q["servers"][0]["addr"].rsplit(":", 1)
            wait = q["timeout_ms"] / 1000
            client = redis.Redis(connection_pool=redis.ConnectionPool(
                {"desync": Kept, "select": SelectsOnce, "once": OpenedOnce}.get(BUG, redis.Connection),
                host=host, port=int(port), socket_timeout=wait, socket_connect_timeout=wait,
                retry=Retry(NoBackoff(), 10 if BUG == "persists" else 0), retry_on_timeout=BUG == "persists"))
        say(q["id"], {"protocol": 1, "name": BUG, "language": "python", "parallel": 32, "keys": ["{name}"], "promises": {"extend": True, "release_tells": True, "watchdog": BUG == "leased"}})
    while BUG == "stays":
        time.sleep(1)


main()
