"""The driver protocol for a lock in Python, so that a driver is the lock and nothing else: copy this file beside it.

A lock has hello, open(q), acquire(q), release(held) and, if it promises that, extend(held, seconds). acquire returns what release
and extend are given, or False where the library says that it did not grant the lock; they return False where it says that the lock
is not held. Where the library gives fields of the answer, such as valid_ms, acquire returns Granted, and extend a dict. Any exception is an unknown outcome; a ValueError of open refuses the topology.

Each request has a thread of its own. Methods that are coroutines run in one event loop, as the tasks of a service do; a driver that
promises cancel has such an acquire: its task is cancelled.
"""
import asyncio
import inspect
import json
import os
import socket
import threading


class Granted:
    def __init__(self, held, **fields):
        self.held, self.fields = held, fields


def addresses(q):
    return [(host, int(port)) for host, port in (s["addr"].rsplit(":", 1) for s in q["servers"])]


def client(q, **options):
    """A client of redis-py for the server, for the master that the sentinels know, or for the cluster, with the time that the run lets clients wait."""
    import redis
    at, wait = addresses(q), q["timeout_ms"] / 1000
    options = dict(options, socket_timeout=wait, socket_connect_timeout=wait, password=os.environ.get("LOCKCHAOS_REDIS_PASSWORD"))
    if q["topology"] == "sentinel":
        from redis.sentinel import Sentinel
        return Sentinel(at, sentinel_kwargs=dict(socket_timeout=wait, socket_connect_timeout=wait)).master_for(q["master"], **options)
    if q["topology"] == "cluster":
        from redis.cluster import ClusterNode, RedisCluster
        return RedisCluster(startup_nodes=[ClusterNode(*a) for a in at], **options)
    if len(at) > 1:
        raise ValueError("this lock is on one server, behind sentinels or on a cluster")
    return redis.Redis(host=at[0][0], port=at[0][1], **options)


def serve(lock):
    conn = socket.socket(socket.AF_UNIX)
    conn.connect(os.environ["LOCKCHAOS_SOCKET"])
    lines, out = conn.makefile("r", encoding="utf-8"), conn.makefile("w", encoding="utf-8")
    loop, holds, writing = asyncio.new_event_loop(), {}, threading.Lock()
    tasks, early = {}, set()  # of the loop: what is under way, and what was cancelled before it began
    threading.Thread(target=loop.run_forever, daemon=True).start()

    def say(q, **message):
        with writing:
            try:
                out.write(json.dumps(dict(message, re=q["id"])) + "\n")
                out.flush()
            except OSError:
                pass  # the run is over

    def call(q, method, *args):
        result = method(*args)
        if not inspect.isawaitable(result):
            return result

        async def task():
            if q["id"] in early:
                result.close()
                return False
            tasks[q["id"]] = asyncio.current_task()
            try:
                return await result
            finally:
                del tasks[q["id"]]
        return asyncio.run_coroutine_threadsafe(task(), loop).result()

    def answer(q):
        if q["op"] == "ping":
            return {"result": "ok"}
        if q["op"] == "acquire":
            held = call(q, lock.acquire, q)
            if held is False:
                return {"result": "fail", "why": "not granted"}
            granted = held if isinstance(held, Granted) else Granted(held)
            holds["h%d" % q["id"]] = granted.held
            return dict(granted.fields, result="ok", hold="h%d" % q["id"])
        if q["op"] == "release":
            done = call(q, lock.release, holds[q["hold"]])
        elif q["op"] == "extend" and hasattr(lock, "extend"):
            done = call(q, lock.extend, holds[q["hold"]], q["lease_ms"] / 1000)
        else:
            return {"result": "unsupported"}
        return {"result": "fail", "why": "not held"} if done is False else dict(done if isinstance(done, dict) else {}, result="ok")

    def one(q):
        try:
            said = answer(q)
        except (Exception, asyncio.CancelledError) as e:  # what was asked for may have happened
            said = {"result": "info", "why": ("%s: %s" % (type(e).__name__, e))[:300]}
        say(q, **said)

    def cancel(request):
        tasks[request].cancel() if request in tasks else early.add(request)

    for line in lines:
        q = json.loads(line)
        if q["op"] == "hello":
            try:
                if q.get("servers"):
                    call(q, lock.open, q)
                say(q, **dict({"protocol": 2, "language": "python", "version": os.environ.get("LOCKCHAOS_VERSION", ""), "parallel": 32, "keys": ["{name}"]}, **lock.hello))
            except ValueError as e:
                say(q, result="fail", why=str(e))
        elif q["op"] == "cancel":
            loop.call_soon_threadsafe(cancel, q["id"])
        else:
            threading.Thread(target=one, args=(q,), daemon=True).start()
    os._exit(0)
