"""redis-py's Lock under the workloads of `compare-bench --peers`.

The orders and answers are those of the other peers; peers/rust/common/src/lib.rs describes them. Each task is a thread.
"""

import json
import os
import sys
import threading
import time

import redis

SETUP = "a Lock with a lease of 10 s that asks every 0.1 s, and a thread, for each task; one client as it comes"
LACKS = "fencing tokens; order; renewal; word of a loss"
LEASE = 10
WARM_UP = 1_000_000_000


def now():
    """The boot clock, which all processes of a host share."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def lock(client, name):
    return client.lock("compare_peers/" + name, timeout=LEASE)


def together(tasks, work):
    """One thread for each task. What all of them answer, and how long it took from their common start to the last."""
    answers, errors, start = [], [], threading.Barrier(tasks + 1)

    def one(task):
        start.wait()
        try:
            answers.extend(work(task))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=one, args=(task,)) for task in range(tasks)]
    for thread in threads:
        thread.start()
    start.wait()
    began = now()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return answers, now() - began


def cycles(client, name, tasks, length):
    """Each task on a name of its own, again and again."""

    def work(task):
        own, latencies, began = lock(client, f"{name}/{task}"), [], now()
        while (start := now()) - began < length:
            own.acquire()
            own.release()
            latencies.append(now() - start)
        return latencies

    latencies, elapsed = together(tasks, work)
    return {"latencies_ns": latencies, "elapsed_ns": elapsed}


def contend(client, name, tasks, hold, until):
    """All tasks on one name. A turn is [task, asked, acquired, released]."""

    def work(task):
        own, turns = lock(client, name), []
        while (asked := now()) < until:
            own.acquire()
            acquired = now()
            if hold:
                time.sleep(hold / 1e9)
            released = now()
            own.release()
            turns.append([task, asked, acquired, released])
        return turns

    turns, _ = together(tasks, work)
    return {"turns": turns}


def say(answer):
    print(json.dumps(answer), flush=True)


def serve():
    client = redis.Redis.from_url(os.environ["PEER_URLS"])
    cycles(client, f"warm-{os.getpid()}", 1, WARM_UP)
    say({"name": "redis-py", "version": redis.__version__, "setup": SETUP, "lacks": LACKS, "now": now()})
    for order in sys.stdin:
        what, name, *numbers = order.split()
        work = {"cycles": cycles, "contend": contend}[what]
        say(work(client, name, *map(int, numbers)))


try:
    serve()
except Exception as error:
    say({"error": repr(error)})
    sys.exit(1)
