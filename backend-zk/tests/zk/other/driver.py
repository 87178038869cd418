"""Takes and gives locks of kazoo as its input says: "ID KIND PATH" takes, "ID" gives.

"again PATH" takes and gives a mutex by an object that is made once for each path, and kept."""

import sys
import threading
import time

from kazoo.client import KazooClient

OURS = {
    "mutex": ["-lock-"],
    "read": ["-lock-", "-__WRIT__"],
    "write": ["-lock-", "-__WRIT__", "-__READ__"],
}
output = threading.Lock()


def say(words):
    with output:
        print(words, flush=True)


def lock(client, kind, path):
    make = {"mutex": client.Lock, "read": client.ReadLock, "write": client.WriteLock}[kind]
    return make(path, "kazoo", extra_lock_patterns=OURS[kind])


def hold(client, name, kind, path, end):
    one = lock(client, kind, path)
    one.acquire()
    say(name + " held")
    end.wait()
    one.release()
    say(name + " released")


def again(client, objects, path):
    one = objects.setdefault(path, lock(client, "mutex", path))
    try:
        one.acquire(timeout=20)
        one.release()
        say("again took")
    except Exception as error:
        say("again " + type(error).__name__)


def bench(client, path, cycles):
    one = lock(client, "mutex", path)
    began = time.monotonic_ns()
    for _ in range(cycles):
        one.acquire()
        one.release()
    say("bench %d" % ((time.monotonic_ns() - began) // cycles))


client = KazooClient(sys.argv[1])
client.start()
say("ready")
ends, objects = {}, {}
for line in sys.stdin:
    words = line.split()
    if words[0] == "bench":
        bench(client, words[1], int(words[2]))
    elif words[0] == "again":
        threading.Thread(target=again, args=(client, objects, words[1]), daemon=True).start()
    elif len(words) == 1:
        ends[words[0]].set()
    else:
        ends[words[0]] = threading.Event()
        args = (client, *words, ends[words[0]])
        threading.Thread(target=hold, args=args, daemon=True).start()
