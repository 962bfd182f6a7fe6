#!/usr/bin/python3
"""Puts Redlock over redis-py under test:

    lockchaos run --topology independent --lock exec:drivers/redlock/driver.py

It asks all servers side by side and counts their votes. A server that does not answer
may have done what it was asked for: where that decides, the outcome is "info".
"""
import json
import os
import socket
import sys
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import redis

HELLO = {
    "protocol": 1, "name": "redlock", "version": redis.__version__, "language": "python", "parallel": 16,
    "promises": {"extend": True, "release_tells": True, "quorum": True}, "keys": ["{name}"],
}
RELEASE = "if redis.call('GET',KEYS[1]) == ARGV[1] then return redis.call('DEL',KEYS[1]) end return 0"
EXTEND = "if redis.call('GET',KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE',KEYS[1],ARGV[2]) end return 0"

writing = threading.Lock()
holds = {}  # the name and the value of each hold


class Redlock:
    def __init__(self, addresses, timeout):
        self.servers = [redis.Redis(h, int(p), socket_timeout=timeout, socket_connect_timeout=timeout,
                                    password=os.environ.get("LOCKCHAOS_REDIS_PASSWORD"))
                        for h, p in (a.rsplit(":", 1) for a in addresses)]
        self.pool = ThreadPoolExecutor(HELLO["parallel"] * len(self.servers))

    def ask(self, request):
        """Asks all servers; returns how many said yes, and how many did not answer."""
        def one(server):
            try:
                return bool(request(server))
            except redis.RedisError:
                return None
        votes = list(self.pool.map(one, self.servers))
        return votes.count(True), votes.count(None)

    def majority(self, votes):
        return votes > len(self.servers) // 2

    def decide(self, yes, silent, why):
        if self.majority(yes):
            return {"result": "ok"}
        return {"result": "info" if self.majority(yes + silent) else "fail", "why": why}

    def acquire(self, q):
        name, lease, value = q["lock"], q["lease_ms"], uuid.uuid4().hex
        begun = time.monotonic()
        yes, silent = self.ask(lambda s: s.set(name, value, nx=True, px=lease))
        valid = lease - int(lease * 0.01) - 2  # clocks drift
        if self.majority(yes) and (time.monotonic() - begun) * 1000 < valid:
            hold = "h%d" % q["id"]
            holds[hold] = (name, value)
            return {"result": "ok", "hold": hold, "valid_ms": valid}
        _, left = self.ask(lambda s: s.eval(RELEASE, 1, name, value))
        return {"result": "info" if silent or left else "fail", "why": "%d of %d votes" % (yes, len(self.servers))}

    def answer(self, q):
        op = q["op"]
        if op == "ping":
            return {"result": "ok"}
        if op == "acquire":
            return self.acquire(q)
        if op == "release":
            name, value = holds[q["hold"]]
            yes, silent = self.ask(lambda s: s.eval(RELEASE, 1, name, value))
            return self.decide(yes, silent, "held on %d servers" % yes)
        if op == "extend":
            name, value = holds[q["hold"]]
            yes, silent = self.ask(lambda s: s.eval(EXTEND, 1, name, value, q["lease_ms"]))
            return self.decide(yes, silent, "held on %d servers" % yes)
        return {"result": "unsupported"}


def main():
    path = os.environ.get("LOCKCHAOS_SOCKET")
    if path:
        s = socket.socket(socket.AF_UNIX)
        s.connect(path)
        lines, out = s.makefile("r", encoding="utf-8"), s.makefile("w", encoding="utf-8")
    else:
        lines, out = sys.stdin, sys.stdout

    def say(message):
        with writing:
            out.write(json.dumps(message) + "\n")
            out.flush()

    def serve(lock, q):
        try:
            r = lock.answer(q)
        except Exception as e:  # whatever it is: the outcome is not known
            r = {"result": "info", "why": "%s: %s" % (type(e).__name__, e)}
        try:
            say(dict(r, re=q["id"]))
        except ConnectionError:
            pass  # the run is over, and lockchaos does not read the answer

    lock = None
    for line in lines:
        q = json.loads(line)
        if q["op"] != "hello":
            threading.Thread(target=serve, args=(lock, q), daemon=True).start()
        elif q.get("topology", "independent") not in ("independent", "single"):
            say({"re": q["id"], "result": "fail", "why": "Redlock is on servers that know nothing of each other"})
        else:
            if q.get("servers"):
                lock = Redlock([s["addr"] for s in q["servers"]], q["timeout_ms"] / 1000)
            say(dict(HELLO, re=q["id"]))


main()
