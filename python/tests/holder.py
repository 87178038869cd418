#!/usr/bin/env python3
"""The other process of the conformance suite: it waits for a lock, and holds it until it is killed."""

from __future__ import annotations

import os
import sys
import threading
import time

import lockwell


def end_with_the_suite() -> None:
    sys.stdin.read()
    os._exit(0)


threading.Thread(target=end_with_the_suite, daemon=True).start()
ttl = int(os.environ["LOCKWELL_HOLDER_TTL_MS"]) / 1000
locks = lockwell.connect(os.environ["LOCKWELL_HOLDER_ADDRESS"])
lock = locks.lock(os.environ["LOCKWELL_HOLDER_NAME"], ttl=ttl).acquire()
print(f"held {lock.token}", flush=True)
looked = time.clock_gettime(time.CLOCK_BOOTTIME)
while True:
    time.sleep(0.002)
    # The first look after a stop that was longer than the lease must say no.
    now, held = time.clock_gettime(time.CLOCK_BOOTTIME), lock.is_held
    if held and now - looked > ttl:
        print(f"stale is_held after a stop of {now - looked} s", flush=True)
    looked = now
    if not held:
        break
print(f"lost {lock.wait_lost()}", flush=True)
threading.Event().wait()
