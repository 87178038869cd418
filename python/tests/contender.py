#!/usr/bin/env python3
"""A worker of the fault runs: `LOCKWELL_CONTENDER=python/tests/contender.py compare-bench faults ...` makes
every second worker one of these.

It does what `faults/src/work.rs` does, each task on a thread: it takes locks, raises the counters of the
witness under them, and notes when it considered itself the holder. `faults/src/history.rs` describes its
file, and `faults/src/witness.rs` its requests.
"""

from __future__ import annotations

import json
import os
import random
import socket
import struct
import sys
import threading
import time
from typing import Any

import lockwell

EXCLUSIVE, SHARED = 0, -1
READ, WRITE = 0, 1
# How often a holder looks whether it still holds, and how long a task pauses after an error, in seconds.
LOOK, AFTER_ERROR = 0.004, 0.02
# One task of so many takes locks that are held for long.
SHARE = 4
STOP = threading.Event()


def now() -> int:
    """The boot clock, which all processes of a host share."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def snake_to_camel(word: str) -> str:
    return "".join(part.capitalize() for part in word.split("_"))


class Task:
    """A thread that takes locks."""

    def __init__(self, number: int, locks: lockwell.Locks, work: dict[str, Any], journal: int) -> None:
        self.number, self.locks, self.work, self.journal = number, locks, work, journal
        self.crew = work["crew"]
        self.random = random.Random(work["seed"] ^ work["worker"] << 32 ^ number << 8)
        self.witness = socket.socket(socket.AF_UNIX)
        self.witness.connect(work["witness"])
        self.holds = 0

    def run(self) -> None:
        try:
            while not STOP.is_set():
                self.step()
        except BaseException as error:
            print(f"error {error!r}", flush=True)
            os._exit(1)

    def note(self, event: str, **fields: object) -> None:
        line = json.dumps({"task": self.number, "event": event, **fields})
        os.write(self.journal, f"{line}\n".encode())

    def chance(self, of_a_hundred: int) -> bool:
        return self.random.randrange(100) < of_a_hundred

    def takes_its_time(self) -> bool:
        return self.crew["long"][0] > 0 and self.number % SHARE == SHARE - 1

    def ask_witness(
        self, what: int, lock: int, held: lockwell.Lock, plain: int, guarded: int
    ) -> tuple[int, ...]:
        owner = self.work["worker"] << 48 | self.number << 24 | self.holds
        self.witness.sendall(struct.pack("<6Q", what, lock, held.token, owner, plain, guarded))
        return struct.unpack("<3Q", self.witness.recv(24, socket.MSG_WAITALL))

    def step(self) -> None:
        lock = self.random.randrange(self.crew["locks"])
        if self.takes_its_time():
            lock += self.crew["locks"]
        modes = self.work["modes"]
        mode = self.random.choice(modes[lock % len(modes)])
        name = f"{self.work['prefix']}/{lock}"
        options = {"ttl": self.work["ttl"] / 1e6, "wait": self.work["wait"] / 1e6}
        if mode == EXCLUSIVE:
            request = self.locks.lock(name, **options)
        elif mode == SHARED:
            request = self.locks.read(name, **options)
        else:
            request = self.locks.permit(name, mode, **options)
        asked = now()
        try:
            held = request.try_now() if self.chance(self.crew["impatient"]) else request.acquire()
        except lockwell.LockwellError as error:
            is_late = isinstance(error, lockwell.TimedOutError)
            why = "timed-out" if is_late else snake_to_camel(error.kind)
            self.note("missed", lock=lock, mode=mode, asked=asked, answered=now(), why=why)
            if not is_late:
                time.sleep(AFTER_ERROR)
            return
        if held is None:
            self.note("missed", lock=lock, mode=mode, asked=asked, answered=now(), why="held")
            return
        came = now()
        self.note("granted", lock=lock, mode=mode, asked=asked, token=held.token, **{"from": came})
        self.until = came
        self.holds += 1
        self.hold(held, lock, mode)

    def hold(self, held: lockwell.Lock, lock: int, mode: int) -> None:
        read = self.ask_witness(READ, lock, held, 0, 0) if mode == EXCLUSIVE else None
        if read is not None and not read[2]:
            self.note("refused", at=now())
        if self.takes_its_time() and self.chance(self.crew["long"][0]):
            length = self.work["ttl"] * self.crew["long"][1] // 100
        else:
            length = 0 if self.chance(70) else self.random.randrange(self.crew["hold"] + 1)
        self.watch(held, length * 1000)
        if read is not None and self.look(held):
            plain, guarded, passes = read
            wrote = self.ask_witness(WRITE, lock, held, plain + 1, guarded + 1 if passes else 0)
            if not wrote[2]:
                self.note("refused", at=now())
        self.look(held)
        end = {None: "released", "taken": "taken"}.get(held.loss, "expired")
        # The time first: a pause between the two must not make the lease longer.
        called = now()
        deadline = called + int(held.time_left * 1e9)
        try:
            held.release()
            end = "released" if end == "expired" else end
        except lockwell.LostError:
            if end == "released":
                end = "taken" if now() < deadline else "expired"
        except lockwell.LockwellError:
            end = "unknown" if end == "released" else end
        self.note("ended", until=self.until, end=end, called=called, answered=now(), told_late=0)

    def watch(self, held: lockwell.Lock, length: int) -> None:
        """Looks again and again for so long, or until the lock is lost."""
        end = now() + length
        written = self.until
        while self.look(held):
            if self.until - written > 15_000_000:
                written = self.until
                self.note("still_held", until=self.until)
            left = (end - now()) / 1e9
            if left <= 0:
                return
            time.sleep(min(left, LOOK))

    def look(self, held: lockwell.Lock) -> bool:
        """Notes the time, if the lock is held."""
        looked, is_over = now(), held.time_left == 0
        is_held = held.is_held
        if is_held:
            self.until = looked
            if is_over:
                self.note("revived")
        return is_held


def main() -> None:
    order = json.loads(sys.stdin.readline())
    work = order["work"]
    # As the runner has it: with an even seed a run is about the order of the server.
    locks = lockwell.connect(order["url"], ttl=work["ttl"] / 1e6, server_order=work["seed"] % 2 == 0)
    locks.lock(f"{work['prefix']}/warm/{work['worker']}", wait=60).acquire().release()
    journal = os.open(work["history"], os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
    tasks = [Task(number, locks, work, journal) for number in range(work["crew"]["tasks"])]
    print("ready", flush=True)
    sys.stdin.readline()
    threads = [threading.Thread(target=task.run, daemon=True) for task in tasks]
    for thread in threads:
        thread.start()
    if not sys.stdin.readline():
        # Whoever started this process has gone.
        os._exit(0)
    STOP.set()
    for thread in threads:
        thread.join()
    print("done", flush=True)
    locks.close(3)


main()
