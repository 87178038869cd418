"""Processes that fork: by themselves, by multiprocessing, in gunicorn and in Celery."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

import lockwell
from scripts import run
from servers import Servers


def test_a_child_leaves_the_locks_of_its_parent(shared_url: str, name: str) -> None:
    run(
        """
import gc, os, sys, time, lockwell
url, name = sys.argv[1:]
locks = lockwell.connect(url)
lock = locks.lock(name, ttl=4).acquire()
request = locks.lock(name)
pid = os.fork()
if pid == 0:
    assert "connect in the child" in repr(lock) and "connect in the child" in repr(locks)
    for use in (lambda: lock.token, lock.release, lock.check, lock.downgrade, request.acquire,
                request.try_now, lambda: locks.inspect(name), locks.close, lambda: lock.on_lost(print)):
        try:
            use()
        except lockwell.ForkedError as error:
            assert error.kind == "forked"
        else:
            raise AssertionError("it was used in the child")
    del lock, request, use
    old, locks = locks, lockwell.connect(url)
    del old
    gc.collect()
    # It is a client like all others.
    assert locks.lock(name).try_now() is None
    with locks.lock(name + "/child", ttl=4) as other:
        time.sleep(5)
        other.check()
    # The interpreter ends as usual, with all its destructors.
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
lock.check()
assert locks.inspect(name).holders[0].token == lock.token
lock.release()
locks.close()
print("done")
""",
        shared_url,
        name,
    )


def test_a_child_of_an_open_client_of_sqlite_is_refused(tmp_path: Path) -> None:
    run(
        """
import os, sys, lockwell
locks = lockwell.connect(sys.argv[1])
pid = os.fork()
if pid == 0:
    try:
        lockwell.connect(sys.argv[1])
    except lockwell.MisconfiguredError as error:
        assert "close all clients before the fork" in str(error), error
        os._exit(7)
    os._exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
locks.close()
pid = os.fork()
if pid == 0:
    with lockwell.connect(sys.argv[1]) as locks, locks.lock("a"):
        os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
print("done")
""",
        f"sqlite://{tmp_path}/locks.db",
    )


def test_a_child_of_a_client_of_zookeeper_is_refused(servers: Servers, name: str) -> None:
    run(
        """
import os, sys, lockwell
url, name = sys.argv[1:]
def child(work):
    pid = os.fork()
    if pid == 0:
        work()
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
def use():
    with lockwell.connect(url) as locks, locks.lock(name + "/child"):
        pass
def is_refused():
    try:
        lockwell.connect(url)
    except lockwell.MisconfiguredError as error:
        assert "after the fork" in str(error), error
    else:
        os._exit(1)
child(use)
locks = lockwell.connect(url)
with locks.lock(name, ttl=1) as lock:
    child(is_refused)
locks.close()
child(is_refused)
print("done")
""",
        servers.url("zookeeper"),
        name,
    )


def test_children_of_a_busy_process_work(redis_url: str, name: str) -> None:
    run(
        """
import asyncio, logging, os, sys, threading, lockwell
url, name = sys.argv[1:]
logging.getLogger("lockwell").setLevel(1)
locks = lockwell.connect(url)
stop = False
def hammer(number):
    while not stop:
        with locks.lock(f"{name}/{number}"):
            pass
threads = [threading.Thread(target=hammer, args=(number,)) for number in range(3)]
for thread in threads:
    thread.start()
async def use():
    async with await lockwell.aconnect(url) as locks:
        async with locks.lock(f"{name}/{os.getpid()}"):
            pass
for _ in range(20):
    pid = os.fork()
    if pid == 0:
        with lockwell.connect(url) as mine, mine.lock(f"{name}/{os.getpid()}", wait=30):
            pass
        asyncio.run(use())
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
stop = True
for thread in threads:
    thread.join()
locks.close()
print("done")
""",
        redis_url,
        name,
    )


def test_multiprocessing(redis_url: str, name: str, tmp_path: Path) -> None:
    file = tmp_path / "counter"
    file.write_text("0")
    run(
        """
import multiprocessing, sys, lockwell
url, name, file = sys.argv[1:]
def connect():
    global locks
    locks = lockwell.connect(url)
def count(_):
    with locks.lock(name, wait=60) as lock:
        number = int(open(file).read())
        open(file, "w").write(str(number + 1))
        return lock.token
def inherited(_):
    return parents.lock(name).acquire()
parents = lockwell.connect(url)
context = multiprocessing.get_context("fork")
with context.Pool(3, initializer=connect) as pool:
    tokens = pool.map(count, range(30))
    assert len(set(tokens)) == 30
    try:
        pool.map(inherited, [1])
    except lockwell.ForkedError as error:
        assert "connect in the child" in str(error)
        print("done")
""".replace("open(file).read()", "__import__('pathlib').Path(file).read_text()").replace(
            'open(file, "w").write', "__import__('pathlib').Path(file).write_text"
        ),
        redis_url,
        name,
        str(file),
    )
    assert file.read_text() == "30"


@contextmanager
def running(command: list[str], folder: Path, **variables: str) -> Iterator[Path]:
    """A program that runs in this folder; yields the file of its output."""
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=folder,
            stdout=output,
            stderr=output,
            env={**os.environ, **variables},
        )
        try:
            yield log
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def eventually(look: Callable[[], object], log: Path) -> object:
    end = time.monotonic() + 60
    while True:
        try:
            return look()
        except (OSError, TimeoutError) as error:
            assert time.monotonic() < end, f"{error}\n{log.read_text()}"
            time.sleep(0.1)


GUNICORN = """
import json, os, pathlib, lockwell

# With --preload before the fork; the lock is for the master alone.
locks = lockwell.per_process()
held = locks.lock("gunicorn/master", ttl=1).acquire()

def app(environ, start_response):
    answer = {"pid": os.getpid()}
    if environ["PATH_INFO"] == "/forked":
        try:
            held.release()
        except lockwell.ForkedError as error:
            answer["error"] = str(error)
    else:
        file = pathlib.Path("counter")
        with locks.lock("gunicorn/counter", wait=30):
            number = int(file.read_text())
            file.write_text(str(number + 1))
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(answer).encode()]
"""


@pytest.mark.parametrize("kind", ["sync", "gthread"])
def test_gunicorn(redis_url: str, tmp_path: Path, kind: str) -> None:
    pytest.importorskip("gunicorn")
    (tmp_path / "app.py").write_text(GUNICORN)
    (tmp_path / "counter").write_text("0")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [
        "gunicorn",
        "app:app",
        "--preload",
        "--workers",
        "3",
        "--worker-class",
        kind,
        "--bind",
        address,
    ]

    def get(path: str) -> dict[str, object]:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=60) as answer:
            return json.load(answer)  # type: ignore[no-any-return]

    with running(command, tmp_path, LOCKWELL_URL=redis_url) as log:
        eventually(lambda: get("/"), log)
        requests, workers = 1, set()
        with ThreadPoolExecutor(6) as threads:
            # On a busy machine the first worker may be alone for a while.
            while len(workers) < 2 and requests < 2000:
                workers |= {answer["pid"] for answer in threads.map(get, ["/"] * 29)}
                requests += 29
        assert (tmp_path / "counter").read_text() == str(requests), log.read_text()
        assert len(workers) > 1
        assert "connect in the child" in str(get("/forked")["error"])
        with lockwell.connect(redis_url) as locks:
            assert locks.inspect("gunicorn/master").is_held


CELERY = """
import os, pathlib, lockwell
from celery import Celery

app = Celery("app", broker=os.environ["BROKER"], backend=os.environ["BROKER"])
app.conf.update(broker_connection_retry_on_startup=True, worker_prefetch_multiplier=1)
locks = lockwell.per_process()

@app.task
def count():
    file = pathlib.Path("counter")
    with locks.lock("celery/counter", wait=30) as lock:
        number = int(file.read_text())
        file.write_text(str(number + 1))
        return [os.getpid(), lock.token]

@app.task
def fails():
    with locks.lock("celery/fails"):
        locks.lock("celery/fails", wait=0).acquire()
"""


def test_celery(redis_url: str, tmp_path: Path) -> None:
    pytest.importorskip("celery")
    pytest.importorskip("redis")
    (tmp_path / "app.py").write_text(CELERY)
    (tmp_path / "counter").write_text("0")
    client = """
import json, sys
from app import count, fails
ends = [count.delay() for _ in range(12)]
failed = fails.delay()
results = [end.get(timeout=90) for end in ends]
try:
    failed.get(timeout=90)
except Exception as error:
    print(json.dumps([results, type(error).__name__, str(error)]))
"""
    broker = redis_url.rstrip("/") + "/3"
    command = [
        "celery",
        "-A",
        "app",
        "worker",
        "--pool",
        "prefork",
        "--concurrency",
        "3",
        "--without-mingle",
        "--without-gossip",
    ]
    with running(command, tmp_path, LOCKWELL_URL=redis_url, BROKER=broker) as log:
        done = subprocess.run(
            [sys.executable, "-c", client],
            cwd=tmp_path,
            env={**os.environ, "BROKER": broker},
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert done.returncode == 0, done.stderr + log.read_text()
        results, kind, text = json.loads(done.stdout)
        assert (tmp_path / "counter").read_text() == "12"
        assert len({token for _, token in results}) == 12 and len({pid for pid, _ in results}) > 1
        assert kind == "TimedOutError" and "celery/fails" in text


def test_a_fork_hook_that_lets_other_threads_run_stops_none() -> None:
    run(
        """
import os, signal, threading, time
signal.alarm(60)
# Hooks before a fork run in the reverse order: this one after those of the package.
os.register_at_fork(before=lambda: time.sleep(0.5))
import lockwell, lockwell._native as native
locks = lockwell.connect("memory://")
ends = threading.Event()
def use():
    while not ends.wait(0.001):
        native.take_log()
        native.released()
thread = threading.Thread(target=use)
thread.start()
pid = os.fork()
if pid == 0:
    with lockwell.connect("memory://") as locks:
        lock = locks.lock("a").acquire()
        lock._guard.drop_soon()
        locks.lock("a", wait=30).acquire().release()
    os._exit(3)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
ends.set()
thread.join()
print("done")
"""
    )


def test_a_long_line_of_forks() -> None:
    run(
        """
import os, sys, lockwell
for number in range(20):
    with lockwell.connect("memory://") as locks, locks.lock("a"):
        pass
    pid = os.fork()
    if pid:
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if number:
            os._exit(status)
        assert status == 7
        break
else:
    os._exit(7)
print("done")
"""
    )


def test_a_child_that_is_forked_during_the_first_use(redis_url: str, name: str) -> None:
    # No delay: what the first use makes once takes less than a millisecond.
    code = """
import os, signal, sys, threading, time, lockwell
url, name, microseconds = sys.argv[1], sys.argv[2], int(sys.argv[3])
locks = lockwell.connect("memory://") if microseconds % 2 else lockwell.connect(url)
def use():
    with locks.lock(f"{name}/{os.getpid()}"):
        pass
thread = threading.Thread(target=use)
thread.start()
time.sleep(microseconds / 1e6)
pid = os.fork()
if pid == 0:
    signal.alarm(30)
    with lockwell.connect(url) as mine, mine.lock(f"{name}/{os.getpid()}", wait=20):
        pass
    os._exit(7)
thread.join()
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
print("done")
"""
    with ThreadPoolExecutor(4) as threads:
        for end in [threads.submit(run, code, redis_url, name, str(50 * number)) for number in range(40)]:
            end.result()


CHILDREN = """
import os, signal, threading, warnings, lockwell

def drops(url, name):
    # It is meant.
    warnings.simplefilter("ignore", ResourceWarning)
    locks = lockwell.connect(url)
    lock = locks.lock(name, ttl=60).acquire()

def stops(url, name):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    locks = lockwell.connect(url)
    def interrupt():
        while not locks.inspect(name).waiters:
            pass
        os.kill(os.getpid(), signal.SIGINT)
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        locks.lock(name, ttl=60).acquire()
    except KeyboardInterrupt:
        thread.join()
"""


# The fork server of billiard has warnings of its own on the standard error.
@pytest.mark.parametrize(
    ("package", "how"), [("multiprocessing", "fork"), ("multiprocessing", "forkserver"), ("billiard", "fork")]
)
def test_the_end_of_a_child_of_multiprocessing_waits_for_releases(
    shared_url: str, name: str, tmp_path: Path, package: str, how: str
) -> None:
    pytest.importorskip(package)
    (tmp_path / "children.py").write_text(CHILDREN)
    run(
        """
import sys, warnings
url, name, folder, package, how = sys.argv[1:]
# billiard itself is not free of warnings.
warnings.simplefilter("ignore")
sys.path.insert(0, folder)
import importlib, children, lockwell
context = importlib.import_module(package).get_context(how)
def child(target, name):
    process = context.Process(target=target, args=(url, name))
    process.start()
    process.join()
    assert process.exitcode == 0, process.exitcode
locks = lockwell.connect(url)
for number in range(4):
    child(children.drops, f"{name}/{number}")
    assert locks.inspect(f"{name}/{number}").is_free, "it is held until its lease ends"
with locks.lock(name):
    child(children.stops, name)
    assert locks.inspect(name).waiters == 0
print("done")
""",
        shared_url,
        name,
        str(tmp_path),
        package,
        how,
    )


def test_a_child_that_has_the_process_id_of_its_parent(redis_url: str, name: str) -> None:
    """Each is the first process of a namespace of its own."""
    spaces = ["unshare", "--user", "--map-root-user", "--pid", "--fork"]
    if shutil.which("unshare") is None or subprocess.run([*spaces, "true"], capture_output=True).returncode:
        pytest.skip("no namespaces here")
    code = """
import ctypes, gc, os, signal, sys, lockwell
url, name = sys.argv[1:]
locks = lockwell.connect(url)
lock = locks.lock(name, ttl=60).acquire()
CLONE_NEWPID = 0x20000000
assert ctypes.CDLL(None).unshare(CLONE_NEWPID) == 0
parent = os.getpid()
pid = os.fork()
if pid == 0:
    signal.alarm(60)
    assert os.getpid() == parent
    try:
        lock.check()
    except lockwell.ForkedError:
        pass
    else:
        os._exit(1)
    del lock
    gc.collect()
    with lockwell.connect(url) as mine:
        assert mine.lock(name).try_now() is None
        with mine.lock(name + "/child"):
            pass
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
lock.release()
print("done")
"""
    command = [*spaces, sys.executable, "-W", "ignore", "-c", code, redis_url, name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
