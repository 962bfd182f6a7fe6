#!/usr/bin/python3
"""Puts redis-py's Lock under test: lockchaos run --lock 'exec:drivers/redis-py/driver.py'

Each request is answered by a thread of its own, since the library blocks. Only
what the library says for certain is "ok" or "fail": an exception that is not
about the lock itself is "info".
"""
import json
import os
import socket
import sys
import threading

import redis
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.exceptions import LockError, LockNotOwnedError
from redis.lock import Lock
from redis.retry import Retry
from redis.sentinel import Sentinel

HELLO = {
    "protocol": 1, "name": "redis-py", "version": redis.__version__, "language": "python", "parallel": 64,
    "promises": {"kind": "mutex", "extend": True, "wait": True, "release_tells": True},
    "keys": ["{name}"],
}

writing = threading.Lock()
holds = {}


def connect(hello):
    """Connects as a service would, for the topology that hello names.

    redis-py sends a request again by itself whose reply it lost, since version 6 to one server as well; a lock is then
    refused by its own key. Its client of a cluster can be told not to since version 6.
    """
    timeout = hello.get("timeout_ms", 1000) / 1000
    servers = [s["addr"].rsplit(":", 1) for s in hello["servers"]]
    each = {
        "socket_timeout": timeout, "socket_connect_timeout": timeout, "retry": Retry(NoBackoff(), 0),
        "password": os.environ.get("LOCKCHAOS_REDIS_PASSWORD"),
    }
    if hello.get("master"):
        sentinels = Sentinel([(h, int(p)) for h, p in servers], socket_timeout=timeout, socket_connect_timeout=timeout)
        return sentinels.master_for(hello["master"], **each)
    if hello.get("topology") == "cluster":
        nodes = [ClusterNode(h, int(p)) for h, p in servers]
        return RedisCluster(startup_nodes=nodes, **each)
    if len(servers) > 1:
        raise ValueError("redis-py's Lock is on one server, behind sentinels, or on a cluster")
    host, port = servers[0]
    return redis.Redis(host, int(port), **each)


def answer(client, q):
    """Answers one request."""
    op = q["op"]
    if op == "ping":
        return {"result": "ok"}
    if op == "acquire":
        lease = q["lease_ms"]
        if lease == 0:
            return {"result": "info", "why": "redis-py has no watchdog: give a lease"}
        lock = Lock(client, q["lock"], timeout=lease / 1000, thread_local=False)
        wait = q.get("wait_ms", 0)
        if not lock.acquire(blocking=wait > 0, blocking_timeout=wait / 1000 if wait else None):
            return {"result": "fail", "why": "taken"}
        hold = "h%d" % q["id"]
        holds[hold] = lock
        return {"result": "ok", "hold": hold}
    if op in ("extend", "release"):
        lock = holds.get(q["hold"])
        try:
            if op == "extend":
                lock.extend(q["lease_ms"] / 1000, replace_ttl=True)
            else:
                # A lock object forgets its token in its first release.
                token = lock.local.token
                if token is None:
                    return {"result": "fail", "why": "released before"}
                try:
                    lock.release()
                except redis.RedisError as e:
                    if not isinstance(e, LockError):
                        lock.local.token = token
                    raise
        except (LockNotOwnedError, LockError) as e:
            return {"result": "fail", "why": str(e)}
        return {"result": "ok"}
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

    def serve(client, q):
        try:
            r = answer(client, q)
        except Exception as e:  # whatever the library raises: the outcome is not known
            r = {"result": "info", "why": "%s: %s" % (type(e).__name__, e)}
        try:
            say(dict(r, re=q["id"]))
        except ConnectionError:
            pass  # the run is over, and lockchaos does not read the answer

    client = None
    for line in lines:
        q = json.loads(line)
        if q["op"] == "hello":
            if q.get("servers"):
                try:
                    client = connect(q)
                except ValueError as e:
                    say({"re": q["id"], "result": "fail", "why": str(e)})
                    continue
            say(dict(HELLO, re=q["id"]))
            continue
        threading.Thread(target=serve, args=(client, q), daemon=True).start()


main()
