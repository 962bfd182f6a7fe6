#!/usr/bin/python3
"""A driver over redis-py of a read-write lock or a semaphore, with the planted bug that its argument names, or correct."""
import os
import sys
import time
import uuid

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../python"))
from lockchaos import client, serve

KIND, BUG = sys.argv[1:]
NOW = "local t=redis.call('TIME') local now=t[1]*1000+math.floor(t[2]/1000) redis.call('ZREMRANGEBYSCORE',KEYS[1],'-inf',now) "
# KEYS: those that read or have a permit, each with its end, and who writes. ARGV: the token, the lease, and more.
ADD = "redis.call('ZADD',KEYS[1],now+ARGV[2],ARGV[1]) redis.call('PERSIST',KEYS[1]) return 1 "
READ = NOW + "if redis.call('EXISTS',KEYS[2])==1 then return 0 end " + ADD
WRITE = NOW + "if redis.call('ZCARD',KEYS[1])>0 or not redis.call('SET',KEYS[2],ARGV[1],'NX','PX',ARGV[2]) then return 0 end return 1"
PERMIT = NOW + "if redis.call('ZCARD',KEYS[1])>=tonumber(ARGV[3]) then return 0 end " + ADD
EXTEND = NOW + "if redis.call('ZSCORE',KEYS[1],ARGV[1]) then " + ADD + """end
if redis.call('GET',KEYS[2])==ARGV[1] then return redis.call('PEXPIRE',KEYS[2],ARGV[2]) end return 0"""
RELEASE = NOW + """if redis.call('ZREM',KEYS[1],ARGV[1])==1 then return 1 end
if redis.call('GET',KEYS[2])==ARGV[1] then return redis.call('DEL',KEYS[2]) end return 0"""
if BUG == "one-end":  # all readers end when the lease of the last one that came does
    READ = "redis.call('ZADD',KEYS[1],'+inf',ARGV[1]) return redis.call('PEXPIRE',KEYS[1],ARGV[2])"
if BUG == "extends-any":  # a reader that extends late takes the lock from who writes
    EXTEND = NOW + "if ARGV[3]=='read' then redis.call('DEL',KEYS[2]) " + ADD + "end " + EXTEND
if BUG == "gives-back-any":  # a release gives back a permit, whoever has it
    RELEASE = "redis.call('ZREM',KEYS[1],ARGV[1]) redis.call('ZPOPMIN',KEYS[1]) return 1"


class Lock:
    hello = {"name": BUG, "keys": ["{{name}}"], "promises": {"kind": KIND, "extend": True, "release_tells": BUG != "gives-back-any"}}

    def open(self, q):
        self.client = client(q)

    def acquire(self, q):
        token, mode, lease = uuid.uuid4().hex, q.get("mode"), q["lease_ms"]
        keys = ["{%s}" % q["lock"], "{%s}writer" % q["lock"]]
        if BUG == "exclusive":
            mode = "write"
        if BUG == "looks" and mode == "write":  # and then takes it, in a second step
            free = not self.client.exists(keys[0])
            time.sleep(0.1)  # as much as it may take, so that a reader comes between them on any machine
            granted = free and self.client.set(keys[1], token, nx=True, px=lease)
        else:
            if BUG == "looks":
                time.sleep(0.05)  # so that those that write have looked
            granted = self.client.eval({"read": READ, "write": WRITE, None: PERMIT}[mode], 2, *keys, token, lease, q.get("capacity", 0))
        return (keys, token, mode or "") if granted else False

    def release(self, held):
        return self.run(RELEASE, held, 0)

    def extend(self, held, seconds):
        return self.run(EXTEND, held, int(seconds * 1000))

    def run(self, script, held, lease):
        keys, token, mode = held
        return bool(self.client.eval(script, 2, *keys, token, lease, mode))


serve(Lock())
