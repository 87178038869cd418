#!/usr/bin/env python3
import fcntl, json, os, sys, tempfile, time
from concurrent.futures import ThreadPoolExecutor


def now():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Lock:
    def __init__(self, name):
        self.file = open(os.path.join(tempfile.gettempdir(), "own-" + name.replace("/", "-")), "w")

    def acquire(self):
        fcntl.flock(self.file, fcntl.LOCK_EX)

    def release(self):
        fcntl.flock(self.file, fcntl.LOCK_UN)


def together(tasks, work):
    with ThreadPoolExecutor(tasks) as pool:
        return [one for part in pool.map(work, range(tasks)) for one in part]


def cycles(name, tasks, length):
    def work(task):
        lock, latencies = Lock(f"{name}/{task}"), []
        while (start := now()) - began < length:
            lock.acquire()
            lock.release()
            latencies.append(now() - start)
        return latencies

    began = now()
    return {"latencies_ns": together(tasks, work), "elapsed_ns": now() - began}


def contend(name, tasks, hold, until):
    def work(task):
        lock, turns = Lock(name), []
        while (asked := now()) < until:
            lock.acquire()
            acquired = now()
            time.sleep(hold / 1e9)
            released = now()
            lock.release()
            turns.append([task, asked, acquired, released])
        return turns

    return {"turns": together(tasks, work)}


def serve(version, setup):
    print(json.dumps({"version": version, "setup": setup, "now": now()}), flush=True)
    for order in sys.stdin:
        what, name, *numbers = order.split()
        answer = {"cycles": cycles, "contend": contend}[what](name, *map(int, numbers))
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve("1", "flock on a file")
