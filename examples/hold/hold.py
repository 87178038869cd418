#!/usr/bin/env python3
"""Works under a lock that `lockwell hold` keeps: hold.py NAME STEPS"""

import json
import queue
import subprocess
import sys
import threading
import time


class NotObtained(Exception):
    """The lock was not free in time, or the server could not be used."""

    def __init__(self, message, status):
        super().__init__(message)
        self.status = status


class Lost(Exception):
    """The lock is not held any more. Another may hold it."""


class Lock:
    """`with Lock("nightly") as lock:` holds the lock until the end of the block."""

    def __init__(self, name, *options):
        self.lost = threading.Event()
        self.why = "lockwell has ended"
        self._answers = queue.Queue()
        # In a session of its own, so that Ctrl-C ends the work, and the work then ends the hold.
        self._keeper = subprocess.Popen(
            ["lockwell", "hold", "--json", *options, "--", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
            start_new_session=True,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self):
        told = self._answers.get()
        if told is None or told["event"] != "granted":
            status = self._end()
            raise NotObtained(told["message"] if told else self.why, status)
        self.token, self.hold_id = told["token"], told["hold_id"]
        return self

    def __exit__(self, kind, _error, _trace):
        self._say("release")
        # Work that ended well may have overlapped with that of another holder.
        if self._end() != 0 and kind is None:
            raise Lost(self.why)

    def check(self):
        """Returns for how many seconds the lock is held at least, from now. Raises Lost."""
        asked = time.monotonic()  # before the question: the answer may be late
        self._say("check")
        told = self._answers.get()
        if told is None:
            raise Lost(self.why)
        return asked + told["valid_ms"] / 1000 - time.monotonic()

    def _read(self):
        """Reads all the time, in a thread of its own."""
        for line in self._keeper.stdout:
            told = json.loads(line)
            if told["event"] in ("granted", "held", "refused"):
                self._answers.put(told)
            elif told["event"] == "lost":
                self.why = told["message"]
                self.lost.set()
        # At the end of the output the lock is not held any more, whatever the last line was.
        self.lost.set()
        self._answers.put(None)

    def _say(self, line):
        try:
            self._keeper.stdin.write(line + "\n")
            self._keeper.stdin.flush()
        except BrokenPipeError:
            pass  # lockwell has ended: the reader says so

    def _end(self):
        try:
            self._keeper.stdin.close()
        except BrokenPipeError:
            pass
        return self._keeper.wait()


def main(name, steps):
    try:
        with Lock(name, "--wait", "5s") as lock:
            print(f"granted with token {lock.token}", flush=True)
            for step in range(1, steps + 1):
                if lock.check() < 0.2:
                    raise Lost("the time that is left is too short for a step")
                # The work of a step, which ends when the lock is lost.
                if lock.lost.wait(0.1):
                    raise Lost(lock.why)
                print(f"step {step} of {steps}", flush=True)
    except NotObtained as error:
        print(f"not obtained: {error}")
        return error.status
    except Lost as error:
        print(f"lost: {error}")
        return 76
    print("released")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
