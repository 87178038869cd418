"""The lock of redis-py: a command comes in on each line, an answer goes out."""

import sys

import redis
from redis.exceptions import LockError

host, port = sys.argv[1].rsplit(":", 1)
client = redis.Redis(host=host, port=int(port))
locks = {}


def answer(command, name, *rest):
    if command in ("try", "wait"):
        life = float(rest[0]) / 1000 if rest else None
        locks[name] = client.lock(name, timeout=life, blocking=command == "wait", sleep=0.01)
        return "yes" if locks[name].acquire() else "no"
    lock = locks[name]
    if command == "token":
        return lock.local.token.decode()
    if command == "owned":
        return "yes" if lock.owned() else "no"
    try:
        if command == "release":
            lock.release()
        elif command == "extend":
            lock.extend(float(rest[0]) / 1000)
        elif command == "reacquire":
            lock.reacquire()
        return "done"
    except LockError as error:
        return type(error).__name__


for line in sys.stdin:
    print(answer(*line.split()), flush=True)
