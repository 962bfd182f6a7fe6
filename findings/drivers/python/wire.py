"""The driver protocol, for the locks beside this file: each request is answered by a thread of its own.

A lock has hello, open(q), acquire(q), release(h) and, if it promises that, extend(h, seconds). acquire returns what release and
extend are given, or False where the library says that it did not grant the lock; they return False where it says that the
lock is not held. Any exception is an unknown outcome.
"""
import json
import os
import socket
import threading


def client(q, **options):
    """A client of redis-py for the server, for the master that the sentinels know, or for the cluster, with the time that the run lets clients wait."""
    import redis
    at = [(host, int(port)) for host, port in (s["addr"].rsplit(":", 1) for s in q["servers"])]
    wait = q["timeout_ms"] / 1000
    options = dict(options, socket_timeout=wait, socket_connect_timeout=wait)
    if q["topology"] == "sentinel":
        from redis.sentinel import Sentinel
        return Sentinel(at, sentinel_kwargs=dict(socket_timeout=wait, socket_connect_timeout=wait)).master_for(q["master"], **options)
    if q["topology"] == "cluster":
        from redis.cluster import ClusterNode, RedisCluster
        return RedisCluster(startup_nodes=[ClusterNode(*a) for a in at], **options)
    return redis.Redis(host=at[0][0], port=at[0][1], **options)


def serve(lock):
    conn = socket.socket(socket.AF_UNIX)
    conn.connect(os.environ["LOCKCHAOS_SOCKET"])
    lines, out = conn.makefile("r", encoding="utf-8"), conn.makefile("w", encoding="utf-8")
    holds, writing = {}, threading.Lock()

    def say(q, **message):
        with writing:
            try:
                out.write(json.dumps(dict(message, re=q["id"])) + "\n")
                out.flush()
            except OSError:
                pass  # the run is over

    def answer(q):
        if q["op"] == "ping":
            return {"result": "ok"}
        if q["op"] == "acquire":
            held = lock.acquire(q)
            if held is False:
                return {"result": "fail", "why": "not granted"}
            holds["h%d" % q["id"]] = held
            return {"result": "ok", "hold": "h%d" % q["id"]}
        held = holds[q["hold"]]
        done = lock.release(held) if q["op"] == "release" else lock.extend(held, q["lease_ms"] / 1000)
        return {"result": "fail", "why": "not held"} if done is False else {"result": "ok"}

    def one(q):
        try:
            said = answer(q)
        except Exception as e:  # what was asked for may have happened
            said = {"result": "info", "why": ("%s: %s" % (type(e).__name__, e))[:300]}
        say(q, **said)

    for line in lines:
        q = json.loads(line)
        if q["op"] == "hello":
            if q.get("servers"):
                lock.open(q)
            say(q, **dict({"protocol": 1, "language": "python", "parallel": 32, "keys": ["{name}"]}, **lock.hello))
        else:
            threading.Thread(target=one, args=(q,), daemon=True).start()
    os._exit(0)
