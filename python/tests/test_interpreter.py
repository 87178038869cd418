"""What the interpreter does meanwhile: it holds its lock, handles signals, runs greenlets, logs."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import lockwell
from lockwell.testing import TestServer
from scripts import run
from servers import ROOT, program


def rust(url: str, name: str, *options: str) -> subprocess.Popen[bytes]:
    """The command `lockwell run`: another process, without Python."""
    return subprocess.Popen(
        [*program("lockwell"), "run", *options, name, "--", "true"],
        cwd=ROOT,
        env={**os.environ, "LOCKWELL_URL": url},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def test_a_held_interpreter_lock_loses_no_lock(url: str, name: str) -> None:
    with lockwell.connect(url) as locks, locks.lock(name, ttl=1) as lock:
        other = rust(url, name, "--wait", "2500ms")
        # Functions of a PyDLL run with the interpreter lock: no other thread of Python does.
        ctypes.PyDLL(None).sleep(3)
        assert other.wait(60) == 75, "the lock was not free in time"
        lock.check()
        assert locks.inspect(name).holders[0].token == lock.token


def test_a_signal_ends_a_wait(memory: lockwell.Locks) -> None:
    with memory.lock("signal"):
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            memory.lock("signal").acquire()
        assert time.monotonic() - began < 60
        while memory.inspect("signal").waiters:
            time.sleep(0.01)
    with memory.lock("signal", wait=5):
        pass


def test_the_end_of_a_program_waits_for_the_claim_of_an_interrupted_wait(tmp_path: Path) -> None:
    run(
        """
import atexit, os, signal, subprocess, sys, threading, time
def ended():
    waiters = locks.inspect("a").waiters
    thread.join()
    held.release()
    print(waiters or "done")
# What is registered first is called last: after what lockwell does at the end.
atexit.register(ended)
import lockwell
# Not in this process: with two libraries for SQLite in one process, neither sees the locks of the other.
WRITER = '''
import sqlite3, sys
file = sqlite3.connect(sys.argv[1], isolation_level=None)
file.execute("BEGIN IMMEDIATE")
print(flush=True)
sys.stdin.readline()
file.execute("COMMIT")
file.close()
'''
signal.signal(signal.SIGINT, signal.default_int_handler)
locks = lockwell.connect(f"sqlite://{sys.argv[1]}")
held = locks.lock("a", ttl=60).acquire()
ends = threading.Event()
def interrupt():
    while not locks.inspect("a").waiters:
        time.sleep(0.01)
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", WRITER, sys.argv[1]], stdin=pipe, stdout=pipe) as writer:
        writer.stdout.readline()
        # Nobody else can write now, so the claim stays.
        os.kill(os.getpid(), signal.SIGINT)
        ends.wait()
        time.sleep(0.3)
        writer.communicate(b"\\n")
thread = threading.Thread(target=interrupt, daemon=True)
thread.start()
try:
    lockwell.connect(f"sqlite://{sys.argv[1]}").lock("a", ttl=60).acquire()
except KeyboardInterrupt:
    atexit.register(ends.set)
""",
        str(tmp_path / "locks.db"),
    )


def test_a_signal_handler_may_wait_as_well(memory: lockwell.Locks) -> None:
    seen: list[bool] = []

    def handle(number: int, frame: object) -> None:
        with memory.lock("in the handler"):
            seen.append(memory.inspect("in the handler").is_held)
        held.release()

    held = memory.lock("handled").acquire()
    before = signal.signal(signal.SIGUSR1, handle)
    try:
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        memory.lock("handled", wait=60).acquire().release()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen == [True]


def test_the_error_of_a_second_release_is_made_while_others_may_use_the_lock() -> None:
    run(
        """
import signal, lockwell, lockwell._errors as errors
# A test that hangs with the interpreter lock can be ended by a signal alone that Python does not handle.
signal.alarm(30)
locks = lockwell.connect("memory://")
lock = locks.lock("a").acquire()
lock.release()
real = errors.made
def made(*facts):
    # As a signal handler, or another thread that has its turn now.
    assert not lock._guard.is_open()
    return real(*facts)
errors.made = made
try:
    lock.release()
except lockwell.NotHeldError:
    print("done")
"""
    )


def test_other_threads_run_during_a_wait(memory: lockwell.Locks) -> None:
    held = memory.lock("threads").acquire()
    threading.Timer(0.2, held.release).start()
    memory.lock("threads", wait=60).acquire().release()


def test_greenlets_wait_and_keep_their_locks(some_url: str, name: str) -> None:
    pytest.importorskip("gevent")
    run(
        """
from gevent import monkey
monkey.patch_all()
import gevent, sys, time, lockwell
from gevent.hub import getcurrent
locks = lockwell.connect(sys.argv[1])
name = sys.argv[2]
inside = total = 0
def work():
    global inside, total
    for _ in range(3):
        with locks.lock(name, wait=60):
            inside += 1
            gevent.sleep(0.001)
            assert inside == 1
            inside -= 1
            total += 1
jobs = [gevent.spawn(work) for _ in range(5)]
gevent.joinall(jobs, raise_error=True, timeout=100)
assert total == 15, total
# A greenlet that never yields stops all others, but not the renewals.
with locks.lock(name, ttl=1) as lock:
    end = time.monotonic() + 3
    while time.monotonic() < end:
        pass
    lock.check()
waits = gevent.spawn(lambda: locks.lock(name).acquire())
with locks.lock(name + "/loss", ttl=1) as lock:
    losses = []
    lock.on_lost(losses.append)
    gevent.spawn(locks.force_release, name + "/loss")
    lock.wait_lost(60)
    while not losses:
        gevent.sleep(0.01)
    try:
        lock.release()
    except lockwell.LostError:
        pass
waits.get(timeout=60).release()
locks.close()
print("done")
""",
        some_url,
        name,
    )


def test_a_program_without_poll_works() -> None:
    # As eventlet leaves the module that it has patched.
    run(
        """
import logging, select, threading, time
del select.poll
import lockwell
logging.getLogger("lockwell").setLevel(1)
locks = lockwell.connect("memory://")
lock = locks.lock("a").acquire()
threading.Timer(0.2, lock.release).start()
with locks.lock("a", wait=60):
    pass
lock = locks.lock("a").acquire()
try:
    lock.wait_lost(0.1)
except TimeoutError:
    pass
called = threading.Event()
lock.on_lost(lambda reason: called.set())
locks.force_release("a")
assert called.wait(30)
try:
    lock.release()
except lockwell.LostError:
    print("done")
"""
    )


def test_events_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    server = TestServer()
    with caplog.at_level(logging.DEBUG, logger="lockwell"), server.locks() as locks:
        lock = locks.lock("logged").acquire()
        server.lose("logged")
        lock.wait_lost(30)
        end = time.monotonic() + 30
        while not any("lock lost" in record.message for record in caplog.records):
            assert time.monotonic() < end
            time.sleep(0.01)
        with pytest.raises(lockwell.LostError):
            lock.release()
    (record,) = [record for record in caplog.records if "lock lost" in record.message]
    assert record.levelno == logging.WARNING and record.name.startswith("lockwell.lockwell_core.")
    assert "lockwell.name=logged" in record.message and abs(record.created - time.time()) < 60


def test_a_handler_that_blocks_stops_no_renewal(memory: lockwell.Locks) -> None:
    blocked = threading.Event()

    class Blocks(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            blocked.wait(60)

    logger = logging.getLogger("lockwell")
    handler = Blocks()
    logger.addHandler(handler)
    before = logger.level
    logger.setLevel(1)
    try:
        with memory.lock("logged", ttl=0.5) as lock:
            for number in range(50):
                memory.lock(f"logged/{number}").acquire().release()
            time.sleep(2)
            lock.check()
    finally:
        blocked.set()
        logger.setLevel(before)
        logger.removeHandler(handler)


def test_nothing_is_recorded_that_the_logger_does_not_want() -> None:
    run(
        """
import logging, lockwell, lockwell._native as native
from lockwell.testing import TestServer
logging.getLogger("lockwell").setLevel(logging.CRITICAL + 1)
server = TestServer()
locks = server.locks()
lock = locks.lock("a").acquire()
server.lose("a")
lock.wait_lost(30)
assert native.take_log() == ([], 0)
try:
    lock.release()
except lockwell.LostError:
    print("done")
"""
    )


def test_a_callback_that_ends_its_thread_does_not_end_the_others(memory: lockwell.Locks) -> None:
    called = threading.Event()
    for end in (lambda reason: sys.exit(1), lambda reason: called.set()):
        with pytest.raises(lockwell.LostError), memory.lock("callbacks") as lock:
            lock.on_lost(end)
            memory.force_release("callbacks")
            lock.wait_lost(30)
    assert called.wait(30)


def test_the_first_use_tries_again_if_no_thread_can_start() -> None:
    run(
        """
import threading, lockwell
real = threading.Thread.start
def fails(thread):
    raise RuntimeError("can't start new thread")
def expected(call, *arguments):
    threading.Thread.start = fails
    try:
        call(*arguments)
    except RuntimeError as error:
        assert "new thread" in str(error)
    else:
        raise AssertionError("no error")
    threading.Thread.start = real
expected(lockwell.connect, "memory://")
import lockwell._log
locks = lockwell.connect("memory://")
assert any(thread.name == "lockwell-log" for thread in threading.enumerate())
lock = locks.lock("a").acquire()
called = threading.Event()
expected(lock.on_lost, print)
lock.on_lost(lambda reason: called.set())
locks.force_release("a")
assert called.wait(30)
try:
    lock.release()
except lockwell.LostError:
    print("done")
"""
    )


def test_a_signal_handler_may_make_the_first_request_again() -> None:
    run(
        """
import signal, threading, lockwell
real = threading.Thread.start
def interrupted(thread):
    # As a handler that runs in the middle of the start.
    threading.Thread.start = real
    with lockwell.connect("memory://") as locks, locks.lock("in the handler"):
        pass
    real(thread)
signal.alarm(30)
threading.Thread.start = interrupted
with lockwell.connect("memory://") as locks, locks.lock("a"):
    print("done")
"""
    )


def test_a_logger_that_raises_stops_no_later_event() -> None:
    run(
        """
import logging, threading, lockwell
from lockwell.testing import TestServer
logging.lastResort = None
seen = threading.Event()
class Handler(logging.Handler):
    def emit(self, record):
        seen.set()
logging.getLogger("lockwell").addHandler(Handler())
real = logging.getLogRecordFactory()
def factory(*arguments, **others):
    logging.setLogRecordFactory(real)
    raise ValueError("a factory that raises")
logging.setLogRecordFactory(factory)
server = TestServer()
locks = server.locks()
for name in "ab":
    lock = locks.lock(name).acquire()
    server.lose(name)
    lock.wait_lost(30)
    while logging.getLogRecordFactory() is factory:
        pass
    try:
        lock.release()
    except lockwell.LostError:
        pass
assert seen.wait(30)
print("done")
"""
    )


def test_any_level_is_one(memory: lockwell.Locks) -> None:
    try:
        for level in (sys.maxsize, -1):
            logging.disable(level)
            memory.lock("levels").acquire().release()
        logging.getLogger("lockwell").setLevel(-7)
        logging.disable(-9)
        memory.lock("levels").acquire().release()
    finally:
        logging.disable(logging.NOTSET)
        logging.getLogger("lockwell").setLevel(logging.NOTSET)
