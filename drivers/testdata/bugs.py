#!/usr/bin/python3
"""A driver over redis-py with the lock that its first argument names: a correct one that
promises what few drivers do, or one with a planted bug. The second argument is a file of its
own, which says that it has misbehaved once."""
import json
import os
import socket
import sys
import threading
import time
import uuid

import redis

KIND = sys.argv[1]
BUG = KIND.partition("-")[2]
COMPARE = "if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('%s',KEYS[1]%s) end return 0"
RELEASE, EXTEND = COMPARE % ("DEL", ""), COMPARE % ("PEXPIRE", ",ARGV[2]")
AGAIN = """local o=redis.call('HGET',KEYS[1],'owner')
if o and o~=ARGV[1] then return 0 end
redis.call('HSET',KEYS[1],'owner',ARGV[1]) redis.call('PEXPIRE',KEYS[1],ARGV[2])
return redis.call('HINCRBY',KEYS[1],'holds',1)"""
ONCE_LESS = """if redis.call('HGET',KEYS[1],'owner')~=ARGV[1] then return -1 end
local n=redis.call('HINCRBY',KEYS[1],'holds',-1)
if n<=%d then redis.call('DEL',KEYS[1]) end return n""" % (9 if BUG == "first" else 0)
QUEUE = """local head=redis.call('LINDEX',KEYS[2],0)
if redis.call('EXISTS',KEYS[1])==0 and (head==ARGV[1] or not head) then
redis.call('SET',KEYS[1],ARGV[1],'PX',ARGV[2]) redis.call('LREM',KEYS[2],0,ARGV[1]) return 1 end
if ARGV[3]=='1' then redis.call('%s',KEYS[2],ARGV[1]) redis.call('PEXPIRE',KEYS[2],60000) end return 0""" % (
    "LPUSH" if BUG == "last" else "RPUSH")


class Refused(Exception):
    pass


def once():
    """Tell whether this is the first call of all processes."""
    try:
        os.close(os.open(sys.argv[2], os.O_CREAT | os.O_EXCL))
        return True
    except FileExistsError:
        return False


class Kept(redis.Connection):
    """Stays open after a request that was given up, whose reply may still come."""

    def disconnect(self, *args):
        if not isinstance(sys.exc_info()[1], (socket.timeout, redis.TimeoutError)):
            super().disconnect(*args)


class Plain:
    promises = {}

    def __init__(self, client):
        self.client, self.remembered, self.released, self.sha = client, None, set(), None

    def acquire(self, q):
        if BUG == "memory":
            if self.remembered == q["lock"]:
                self.remembered = None
                return (q["lock"], uuid.uuid4().hex), {}
            self.remembered = q["lock"]
        if BUG == "unsure" and once():
            raise redis.RedisError("asked for the first time")
        try:
            return self.ask(q)
        except redis.RedisError:
            if BUG != "refuse":
                raise
            raise Refused("taken")
        except Refused:
            if BUG != "vague":
                raise
            raise redis.RedisError("taken")

    def ask(self, q):
        asked = begin = time.monotonic()
        token, lease = {"client": q["client"], "process": "p%d" % os.getpid()}.get(BUG, uuid.uuid4().hex), q["lease_ms"]
        lease = {"seconds": max(1, lease // 1000) * 1000, "early": lease // 2, "grace": lease * 7 // 5, "graceless": lease * 7 // 5, "lasting": lease * 7 // 5}.get(BUG, lease)
        if BUG in ("recount", "retry"):
            granted, begin = self.ask_twice(q["lock"], token, lease, begin)
        elif BUG == "half":
            granted = self.client.setnx(q["lock"], token)
            if granted:
                self.client.pexpire(q["lock"], lease)
        elif BUG == "shy":  # refuses all that ask at once
            asking = q["lock"] + ":asking"
            self.client.incr(asking)
            time.sleep(0.1)
            granted = int(self.client.get(asking)) == 1 and self.client.set(q["lock"], token, nx=True, px=lease)
            self.client.decr(asking)
        elif BUG == "races":
            granted = not self.client.exists(q["lock"])
            time.sleep(0.1)
            granted = granted and self.client.set(q["lock"], token, px=lease)
        elif BUG == "shorter":
            granted = self.client.set(q["lock"], token, px=lease, nx=self.client.pttl(q["lock"]) < lease)
        else:
            granted = self.client.set(q["lock"], token, nx=True, px=None if BUG == "forever" else lease or 1000)
        if not granted:
            raise Refused("taken")
        if KIND.startswith("watchdog"):
            threading.Thread(target=self.watch, args=(q["lock"], token, lease or 1000), daemon=True).start()
        took = int((time.monotonic() - begin) * 1000)
        return (q["lock"], token), {"reply": {"valid_ms": lease + took}, "brief": {"valid_ms": 3}, "recount": {"valid_ms": int((begin - asked) * 1000) + lease}}.get(BUG, {})

    def ask_twice(self, name, token, lease, begin):
        """Ask again when the connection was closed, and take the key for what it is."""
        try:
            return self.client.set(name, token, nx=True, px=lease or 1000), begin
        except redis.ConnectionError:
            begin = time.monotonic()
            granted = self.client.set(name, token, nx=True, px=lease or 1000)
            return granted or (self.client.get(name) or b"").decode() == token, begin

    def watch(self, name, token, lease):
        while BUG != "dead":
            time.sleep(lease / 3000)
            if BUG == "on":  # also after the release, and of whatever is there
                self.client.set(name, token, px=lease)
            elif not self.client.eval(EXTEND, 1, name, token, lease):
                return

    def release(self, name, token):
        if BUG == "again" and token in self.released:
            self.client.delete(name)
        self.released.add(token)
        if BUG == "noscript":
            return self.try_sha(RELEASE, name, token)
        if BUG == "tardy" and name.endswith("-third") and once():
            time.sleep(2)  # so that the lease ends before the second request
        if BUG in ("tardy", "heeded", "grace", "graceless"):
            return self.after_look(name, token, lambda p: p.delete(name))
        if BUG == "steps":
            return (self.client.get(name) or b"").decode() == token and self.client.delete(name)
        return self.client.eval(RELEASE, 1, name, token)

    def try_sha(self, script, *args):
        """Take it for done when the server does not know the script."""
        self.sha = self.sha or self.client.script_load(script)
        try:
            return self.client.evalsha(self.sha, 1, *args)
        except redis.exceptions.NoScriptError:
            return True

    def extend(self, name, token, lease):
        if BUG == "slow" and once():
            time.sleep(3)  # for longer than the first lease of a check
        if BUG == "foreign":
            return self.client.pexpire(name, lease)
        if BUG == "units":  # milliseconds in a command that takes seconds
            return self.client.eval(EXTEND.replace("PEXPIRE", "EXPIRE"), 1, name, token, lease)
        if BUG in ("look", "watch", "watching", "lasting"):
            return self.after_look(name, token, lambda p: p.pexpire(name, lease))
        if BUG == "taking":
            return self.client.set(name, token, px=lease)
        if BUG == "lie":
            return (self.client.get(name) or b"").decode() == token
        return self.client.eval(EXTEND, 1, name, token, lease)

    def after_look(self, name, token, change):
        """Change the key in another request than that which looks at the owner."""
        with self.client.pipeline() as p:
            try:
                if BUG != "look":
                    p.watch(name)
                if ((p if BUG != "look" else self.client).get(name) or b"").decode() != token:
                    return False
                p.multi()
                change(p)
                return p.execute()[0]
            except redis.WatchError:
                return BUG in ("watch", "tardy", "graceless", "lasting")  # takes a transaction that was not made for one that was


class Told(Plain):
    """Says after nine tenths of the lease that a hold is lost, whose key lives to the end of it."""
    promises = {"lost": True}

    def __init__(self, client):
        super().__init__(client)
        self.timers = {}

    def acquire(self, q):
        begin = time.monotonic()
        (name, token), more = super().acquire(q)
        self.arm(token, "h%d" % q["id"], begin, q["lease_ms"])
        return (name, token, "h%d" % q["id"]), dict(more, valid_ms=q["lease_ms"] * 9 // 10)

    def arm(self, token, hold, begin, lease):
        timer = threading.Timer(max(0, begin + lease * 9 / 10000 - time.monotonic()), tell, [{"event": "lost", "hold": hold}])
        timer.daemon, self.timers[token] = True, timer
        timer.start()

    def release(self, name, token, hold):
        self.timers[token].cancel()
        return super().release(name, token)

    def extend(self, name, token, hold, lease):
        begin = time.monotonic()
        done = super().extend(name, token, lease)
        if done and BUG != "stale":
            self.timers[token].cancel()
            self.arm(token, hold, begin, lease)
        return done


class Counted(Plain):
    promises = {"token": True}
    count = 0

    def acquire(self, q):
        hold, more = super().acquire(q)
        self.count = self.count + 1 if BUG == "alone" else self.client.incr(q["lock"] + ":count")
        return hold, dict(more, token=self.count)


class Watched(Plain):
    promises = {"watchdog": True}


class Reentrant(Plain):
    promises = {"reentrant": True, "extend": False}

    def acquire(self, q):
        holds = self.client.eval(AGAIN, 1, q["lock"], q["owner"], q["lease_ms"])
        if not holds:
            raise Refused("taken")
        return (q["lock"], q["owner"]), {"holds": holds}

    def release(self, name, token):
        return self.client.eval(ONCE_LESS, 1, name, token) >= 0


class Fair(Plain):
    promises = {"fair": True, "wait": True, "extend": False}

    def acquire(self, q):
        token, end, first = uuid.uuid4().hex, time.monotonic() + q["wait_ms"] / 1000, 1
        while not self.client.eval(QUEUE, 2, q["lock"], q["lock"] + ":queue", token, q["lease_ms"], first and q["wait_ms"] > 0 and 1 or 0):
            first = 0
            if time.monotonic() >= end:
                self.client.lrem(q["lock"] + ":queue", 0, token)
                raise Refused("taken")
            time.sleep(0.01)
        return (q["lock"], token), {}


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


LOCK = {"told": Told, "counted": Counted, "watchdog": Watched, "reentrant": Reentrant, "fair": Fair}.get(KIND.partition("-")[0], Plain)
HELLO = {
    "protocol": 1, "name": KIND, "language": "python", "parallel": 32, "keys": ["{name}"],
    "promises": dict({"extend": True, "release_tells": True}, **LOCK.promises),
}
holds, writing = {}, threading.Lock()
tell = None  # how to write a message, once there is a connection


def answer(lock, q):
    if q["op"] == "ping":
        return {"result": "ok"}
    if q["op"] == "acquire":
        hold = "h%d" % q["id"]
        holds[hold], more = lock.acquire(q)
        return dict(more, result="ok", hold=hold)
    if q["op"] in ("release", "extend"):
        more = [q["lease_ms"]] if q["op"] == "extend" else []
        try:
            done = getattr(lock, q["op"])(*holds[q["hold"]], *more)
        except redis.RedisError:
            if BUG != "guess":
                raise
            done = False
        return {"result": "ok" if done else "fail"}
    return {"result": "unsupported"}


def main():
    global tell
    conn = socket.socket(socket.AF_UNIX)
    conn.connect(os.environ["LOCKCHAOS_SOCKET"])
    lines, out = conn.makefile("r", encoding="utf-8"), conn.makefile("w", encoding="utf-8")

    def tell(message):
        with writing:
            out.write(json.dumps(message) + "\n")
            out.flush()

    def say(id, message):
        tell(dict(message, re=id))

    def serve(lock, q):
        try:
            result = answer(lock, q)
        except Refused as e:
            result = {"result": "fail", "why": str(e)}
        except Exception as e:
            result = {"result": "info", "why": str(e)}
        try:
            say(q["id"], result)
        except OSError:
            pass  # the run is over

    lock = None
    for line in lines:
        q = json.loads(line)
        if q["op"] == "hello":
            if q.get("servers"):
                host, port = q["servers"][0]["addr"].rsplit(":", 1)
                wait = 0.25 if BUG == "brisk" else q["timeout_ms"] / 1000
                pool = redis.ConnectionPool(
                    {"desync": Kept, "select": SelectsOnce, "once": OpenedOnce}.get(BUG, redis.Connection),
                    host=host, port=int(port), socket_timeout=wait, socket_connect_timeout=wait)
                lock = LOCK(redis.Redis(connection_pool=pool))
            say(q["id"], HELLO)
        else:
            threading.Thread(target=serve, args=(lock, q), daemon=True).start()


main()
