#!/usr/bin/python3
"""Redlock over redis-py: lockchaos run --topology independent --lock exec:drivers/python/redlock.py

It asks all servers side by side and counts their votes. A server that does not answer may have done what it was asked for: where
that decides, the outcome is unknown.
"""
import os
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import redis

from lockchaos import Granted, addresses, serve

RELEASE = "if redis.call('GET',KEYS[1]) == ARGV[1] then return redis.call('DEL',KEYS[1]) end return 0"
EXTEND = "if redis.call('GET',KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE',KEYS[1],ARGV[2]) end return 0"


class Unsure(Exception):
    pass


class Redlock:
    hello = {"name": "redlock", "version": redis.__version__, "parallel": 16,
             "promises": {"extend": True, "release_tells": True, "quorum": True}}

    def open(self, q):
        if q["topology"] not in ("independent", "single"):
            raise ValueError("Redlock is on servers that know nothing of each other")
        wait, password = q["timeout_ms"] / 1000, os.environ.get("LOCKCHAOS_REDIS_PASSWORD")
        self.servers = [redis.Redis(*at, socket_timeout=wait, socket_connect_timeout=wait, password=password) for at in addresses(q)]
        self.pool = ThreadPoolExecutor(16 * len(self.servers))

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

    def decide(self, yes, silent):
        if self.majority(yes):
            return True
        if self.majority(yes + silent):
            raise Unsure("held on %d servers, and %d did not answer" % (yes, silent))
        return False

    def acquire(self, q):
        name, lease, value = q["lock"], q["lease_ms"], uuid.uuid4().hex
        begun = time.monotonic()
        yes, silent = self.ask(lambda s: s.set(name, value, nx=True, px=lease))
        valid = lease - int(lease * 0.01) - 2  # clocks drift
        if self.majority(yes) and (time.monotonic() - begun) * 1000 < valid:
            return Granted((name, value), valid_ms=valid)
        _, left = self.ask(lambda s: s.eval(RELEASE, 1, name, value))
        if silent or left:
            raise Unsure("%d of %d votes" % (yes, len(self.servers)))
        return False

    def release(self, held):
        return self.decide(*self.ask(lambda s: s.eval(RELEASE, 1, *held)))

    def extend(self, held, seconds):
        return self.decide(*self.ask(lambda s: s.eval(EXTEND, 1, *held, int(seconds * 1000))))


serve(Redlock())
