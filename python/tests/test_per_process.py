"""Clients that each process has for itself."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Barrier

import pytest

import lockwell
from lockwell import _connect
from scripts import run
from servers import Servers


def test_forked_children_have_their_own(shared_url: str, name: str) -> None:
    run(
        """
import os, sys, lockwell
url, name = sys.argv[1:]
locks = lockwell.per_process(url, ttl=4)
@locks.exclusive(name + "/worker")
def work():
    return os.getpid()
def child(work):
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except Exception:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        # With all destructors.
        sys.exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
def use():
    assert work() == os.getpid()
    assert locks.lock(name).try_now() is None
    with locks.lock(f"{name}/{os.getpid()}") as mine:
        assert mine.is_held
def refused(use):
    try:
        use()
    except lockwell.ForkedError:
        return
    raise AssertionError("it was used in the child")
def grandparent():
    use()
    child(use)
    refused(request.acquire)
    refused(lock.release)
    locks.close()
    try:
        use()
    except lockwell.ClosedError:
        return
    raise AssertionError("it is closed")
child(work)
request = locks.lock(name + "/request")
with locks.lock(name) as lock:
    child(grandparent)
    use()
    lock.check()
    assert locks.inspect(name).holders[0].token == lock.token
locks.close()
print("done")
""",
        shared_url,
        name,
    )


def test_one_that_was_not_used_before_the_fork_is_none(servers: Servers, tmp_path: Path, name: str) -> None:
    """SQLite and ZooKeeper refuse the child of a process that has used them."""
    for url in (f"sqlite://{tmp_path}/locks.db", servers.url("zookeeper")):
        run(
            """
import os, sys, lockwell
url, name = sys.argv[1:]
locks = lockwell.per_process(url)
def child(refused):
    pid = os.fork()
    if pid == 0:
        try:
            with locks.lock(name + "/child"):
                os._exit(7)
        except lockwell.MisconfiguredError:
            os._exit(8)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == (8 if refused else 7)
child(False)
with locks.lock(name):
    child(True)
print("done")
""",
            url,
            name,
        )


WORKER = """
import os, pathlib, lockwell

locks = lockwell.per_process()

def count(others, file, number):
    for client in (locks, others):
        with client.lock("counter", wait=60) as lock:
            found = int(pathlib.Path(file).read_text())
            pathlib.Path(file).write_text(str(found + 1))
    return os.getpid()
"""


@pytest.mark.parametrize("how", ["fork", "forkserver", "spawn"])
def test_multiprocessing(redis_url: str, tmp_path: Path, how: str) -> None:
    (tmp_path / "worker.py").write_text(WORKER)
    (tmp_path / "counter").write_text("0")
    run(
        """
import functools, multiprocessing, os, sys
url, folder, how = sys.argv[1:]
sys.path.insert(0, folder)
os.environ["LOCKWELL_URL"] = url + "?namespace=" + how
import lockwell, worker
file = folder + "/counter"
worker.count(worker.locks, file, 0)
# As an argument as well.
count = functools.partial(worker.count, worker.locks, file)
with multiprocessing.get_context(how).Pool(3) as pool:
    assert os.getpid() not in pool.map(count, range(30))
assert open(file).read() == "62"
print("done")
""".replace("open(file).read()", "__import__('pathlib').Path(file).read_text()"),
        redis_url,
        str(tmp_path),
        how,
    )


def test_threads_share_it(monkeypatch: pytest.MonkeyPatch) -> None:
    locks = lockwell.per_process("memory://")
    # As after a fork. Then all come together before one of them has made it.
    _connect._clients.clear()
    monkeypatch.setattr(_connect, "_begin", partial(Barrier(8).wait, 60))
    with ThreadPoolExecutor(8) as threads:
        clients = [end.result() for end in [threads.submit(lambda: locks._client) for _ in range(8)]]
    assert len(set(map(id, clients))) == 1


def test_it_is_a_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(lockwell.InvalidInputError, match="gopher"):
        lockwell.per_process("gopher://a")
    with pytest.raises(TypeError):
        lockwell.per_process("memory://", toml="url = 'memory://'")
    monkeypatch.delenv("LOCKWELL_URL", raising=False)
    of_environment = lockwell.per_process()
    with pytest.raises(lockwell.InvalidInputError, match="LOCKWELL_URL"):
        of_environment.lock("a")
    monkeypatch.setenv("LOCKWELL_URL", "memory://")
    with of_environment, of_environment.lock("a"):
        pass
    # The server may be away.
    with pytest.raises(lockwell.UnreachableError):
        lockwell.per_process("redis://127.0.0.1:1?timeout=50ms").lock("a", wait=0).acquire()

    async def use(locks: lockwell.Locks) -> None:
        async with locks, locks.lock("a") as lock:
            assert lock.is_held and (await locks.ainspect("a")).is_held

    asyncio.run(use(lockwell.per_process(f"sqlite://{tmp_path}/locks.db", label="here", require=["fencing"])))
