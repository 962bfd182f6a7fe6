#!/usr/bin/python3
"""A driver with a lock of its own, to test what is odd but legal: it speaks RESP2 over
a plain socket, keeps the hash of a name as its key, runs scripts by EVALSHA, and hands
a lock over within its process while another of its clients asks for it."""
import hashlib
import json
import select
import socket
import sys
import time

RELEASE = "if redis.call('GET',KEYS[1]) == ARGV[1] then return redis.call('DEL',KEYS[1]) end return 0"
KEEP = 0.3  # seconds for which a lock that was asked for is kept after a release


class Server:
    def __init__(self, address, timeout):
        self.address, self.timeout, self.conn = address, timeout, None

    def ask(self, *words):
        try:
            if self.conn is None:
                self.conn = socket.create_connection(self.address, self.timeout)
                self.replies = self.conn.makefile("rb")
            out = b"*%d\r\n" % len(words)
            for w in (str(w).encode() for w in words):
                out += b"$%d\r\n%s\r\n" % (len(w), w)
            self.conn.sendall(out)
            line = self.replies.readline().rstrip(b"\r\n")
            if not line:
                raise OSError("the server closed the connection")
            if line[:1] == b"$" and line != b"$-1":
                return self.replies.read(int(line[1:]) + 2)[:-2]
            return line
        except OSError:
            if self.conn is not None:
                self.conn.close()
                self.conn = None
            raise

    def run(self, script, key, *arguments):
        reply = self.ask("EVALSHA", hashlib.sha1(script.encode()).hexdigest(), 1, key, *arguments)
        if reply.startswith(b"-NOSCRIPT"):
            reply = self.ask("EVAL", script, 1, key, *arguments)
        return reply


class Held:  # what this process has of a lock on the server
    def __init__(self, token, until):
        self.token, self.until = token, until
        self.hold = None  # of the client that has it; None: it is kept for the next one
        self.wanted, self.kept = False, 0.0


def key(name):
    return "app:" + hashlib.sha1(name.encode()).hexdigest()[:16]


def acquire(server, held, q):
    name, now = q["lock"], time.monotonic()
    has = held.get(name)
    if has and now < has.until - 0.1:
        if has.hold is not None:
            has.wanted = True
            return {"result": "fail", "why": "taken by a client of this process"}
        has.hold, has.wanted = "h%d" % q["id"], False
        return {"result": "ok", "hold": has.hold, "valid_ms": int((has.until - now) * 1000)}
    token = "%s:%d" % (q["owner"], q["id"])
    reply = server.ask("SET", key(name), token, "NX", "PX", q["lease_ms"])
    if reply == b"$-1":
        return {"result": "fail", "why": "taken"}
    if reply != b"+OK":
        return {"result": "info", "why": reply.decode()}
    held[name] = Held(token, now + q["lease_ms"] / 1000)
    held[name].hold = "h%d" % q["id"]
    return {"result": "ok", "hold": held[name].hold}


def release(server, held, q):
    for name, has in held.items():
        if has.hold != q["hold"]:
            continue
        if has.wanted and time.monotonic() < has.until - 0.1:
            has.hold, has.kept = None, time.monotonic()
            return {"result": "ok"}
        reply = server.run(RELEASE, key(name), has.token)
        del held[name]
        return {"result": "ok"} if reply == b":1" else {"result": "fail" if reply == b":0" else "info", "why": reply.decode()}
    return {"result": "fail", "why": "not held"}


def give_back(server, held):
    for name in [n for n, h in held.items() if h.hold is None and time.monotonic() - h.kept > KEEP]:
        has = held.pop(name)
        try:
            server.run(RELEASE, key(name), has.token)
        except OSError:
            pass  # its lease ends


def main():
    server, held = None, {}
    while True:
        while held and not select.select([sys.stdin.fileno()], [], [], 0.1)[0]:
            give_back(server, held)
        line = sys.stdin.buffer.raw.readline()
        if not line:
            return
        q = json.loads(line)
        op = q["op"]
        try:
            if op == "hello":
                if q.get("servers"):
                    host, port = q["servers"][0]["addr"].rsplit(":", 1)
                    server = Server((host, int(port)), q["timeout_ms"] / 1000)
                a = {"protocol": 1, "name": "hand-over", "promises": {"release_tells": True, "hands_over": True}}
            elif op == "ping":
                a = {"result": "ok"}
            elif op == "acquire":
                a = acquire(server, held, q)
            elif op == "release":
                a = release(server, held, q)
            else:
                a = {"result": "unsupported"}
            give_back(server, held)
        except OSError as e:
            a = {"result": "info", "why": str(e)}
        print(json.dumps(dict(a, re=q["id"])), flush=True)


main()
