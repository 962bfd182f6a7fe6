#!/usr/bin/python3
"""A driver over redis-py of a read-write lock or a semaphore, with the planted bug that its argument names, or correct."""
import json
import os
import socket
import sys
import threading
import time
import uuid

import redis

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


def answer(client, holds, q):
    if q["op"] == "ping":
        return {"result": "ok"}
    if q["op"] == "acquire":
        name, token, hold, mode = q["lock"], uuid.uuid4().hex, "h%d" % q["id"], q.get("mode")
        keys = ["{%s}" % name, "{%s}writer" % name]
        if BUG == "exclusive":
            mode = "write"
        if BUG == "looks" and mode == "write":  # and then takes it, in a second step
            free = not client.exists(keys[0])
            time.sleep(0.1)  # as much as it may take, so that a reader comes between them on any machine
            granted = free and client.set(keys[1], token, nx=True, px=q["lease_ms"])
        else:
            if BUG == "looks":
                time.sleep(0.05)  # so that those that write have looked
            script = {"read": READ, "write": WRITE, None: PERMIT}[mode]
            granted = client.eval(script, 2, *keys, token, q["lease_ms"], q.get("capacity", 0))
        if not granted:
            return {"result": "fail", "why": "taken"}
        holds[hold] = keys, token, mode or ""
        return {"result": "ok", "hold": hold}
    if q["op"] not in ("extend", "release"):
        return {"result": "unsupported"}
    keys, token, mode = holds[q["hold"]]
    done = client.eval(EXTEND if q["op"] == "extend" else RELEASE, 2, *keys, token, q.get("lease_ms", 0), mode)
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
            client = redis.Redis(host, int(port), socket_timeout=wait, socket_connect_timeout=wait)
        say(q["id"], {"protocol": 1, "name": BUG, "language": "python", "parallel": 32, "keys": ["{{name}}"],
                      "promises": {"kind": KIND, "extend": True, "release_tells": BUG != "gives-back-any"}})


main()
