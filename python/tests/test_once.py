"""Jobs that run once for a key."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import lockwell
from lockwell import Job, JobRun, Locks, Once
from lockwell.testing import TestServer
from servers import ROOT

DAY = "2026-11-29"


class Broken(Exception):
    pass


def fails(run: JobRun) -> None:
    raise Broken


def attempt(run: JobRun) -> int:
    return run.attempt


def states(locks: Locks, name: str) -> list[tuple[str, str, int]]:
    return [(job.key, job.state, job.attempts) for job in locks.job(name)]


def test_a_key_is_done_once(locks: Locks, name: str) -> None:
    def work(run: JobRun) -> int:
        run.lock.check()
        [job] = locks.job(name)
        assert (job.state, job.by, job.token) == ("running", "web-1", run.lock.token)
        return run.attempt

    def once(key: str, attempts: int = 3) -> lockwell.OnceRequest:
        return locks.once(name, key, attempts=attempts, wait=60, label="web-1")

    assert once(DAY).run(work) == Once("ran", 1, None)
    done = once(DAY).run(work)
    assert done.state == "done" and done.value is None
    assert isinstance(done.job, Job) and (done.job.key, done.job.state, done.job.attempts) == (DAY, "done", 1)
    assert timedelta(0) <= datetime.now(UTC) - done.job.began < timedelta(minutes=5)
    assert done.job.took is not None and done.job.took >= 0
    # A key that fails is tried again, and given up.
    for number in (1, 2):
        with pytest.raises(Broken):
            once("x", number).run(fails)
    given_up = once("x", 2).run(attempt)
    assert given_up.state == "given_up" and given_up.job is not None and given_up.job.attempts == 2
    assert states(locks, name) == [("x", "failed", 2), (DAY, "done", 1)]
    assert (name, "x") in [(job.name, job.key) for job in locks.jobs()]
    assert locks.forget_job(name, "x") and not locks.forget_job(name, "x")
    assert once("x").run(attempt).value == 1

    async def main() -> None:
        async def awork(run: JobRun) -> int:
            [job, *_] = await locks.ajob(name)
            assert job.state == "running" and run.lock.is_held
            return run.attempt

        async def afails(run: JobRun) -> None:
            raise Broken

        assert await once("y").arun(awork) == Once("ran", 1, None)
        assert (await once("y").arun(awork)).state == "done"
        with pytest.raises(Broken):
            await once("z").arun(afails)
        assert [job.state for job in await locks.ajob(name)][:2] == ["failed", "done"]
        assert (name, "z") in [(job.name, job.key) for job in await locks.ajobs()]
        assert await locks.aforget_job(name, "z")

    asyncio.run(main())
    assert not locks.inspect(name).is_held


def test_a_host_that_is_killed_is_followed_by_one_that_waits(locks: Locks, url: str, name: str) -> None:
    script = """
import sys, time, lockwell
url, name = sys.argv[1:]
def work(run):
    print("begun", flush=True)
    time.sleep(60)
lockwell.connect(url).once(name, "1", ttl=2).run(work)
"""
    dies = subprocess.Popen([sys.executable, "-c", script, url, name], stdout=subprocess.PIPE, text=True)
    try:
        assert dies.stdout is not None and dies.stdout.readline() == "begun\n"
        with pytest.raises(lockwell.TimedOutError):
            locks.once(name, "1", wait=0).run(attempt)
    finally:
        dies.kill()
        dies.communicate()
    assert locks.once(name, "1", wait=60).run(attempt) == Once("ran", 2, None)


@contextmanager
def as_time_goes(server: TestServer) -> Iterator[None]:
    """The clock of the server goes on, in small steps."""
    over = threading.Event()

    def go() -> None:
        while not over.wait(0.001):
            server.advance(0.05)

    thread = threading.Thread(target=go)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def newest(locks: Locks) -> tuple[str, str, int]:
    """The newest key, once the lock is free, which is released in the background."""
    while locks.inspect("a").is_held:
        time.sleep(0.001)
    return states(locks, "a")[0]


def test_what_is_no_failure_of_its_own() -> None:
    server = TestServer()
    locks = server.locks()

    def interrupted(run: JobRun) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        locks.once("a", "1").run(interrupted)
    # The attempt is one of a host that has died.
    assert newest(locks) == ("1", "died", 1)
    assert locks.once("a", "1", wait=60).run(attempt).value == 2

    def loses(run: JobRun) -> None:
        server.lose("a")
        run.lock.wait_lost(60)
        run.lock.check()

    with pytest.raises(lockwell.LostError):
        locks.once("a", "2").run(loses)
    assert newest(locks) == ("2", "died", 1)

    async def main() -> None:
        began = asyncio.Event()

        async def hangs(run: JobRun) -> None:
            began.set()
            await asyncio.Event().wait()

        async def loses(run: JobRun) -> None:
            server.lose("a")
            await asyncio.Event().wait()

        with pytest.raises(lockwell.LostError):
            await locks.once("a", "3").arun(loses)
        task = asyncio.create_task(locks.once("a", "4").arun(hangs))
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert newest(locks) == ("4", "died", 1)
    assert locks.once("a", "3", wait=60).run(attempt).value == 2
    assert locks.once("a", "4", wait=60).run(attempt).value == 2


def test_a_success_is_recorded_after_a_loss() -> None:
    server = TestServer()
    locks = server.locks()

    def work(run: JobRun) -> str:
        server.lose("a")
        run.lock.wait_lost(60)
        return "sent"

    with as_time_goes(server):
        assert locks.once("a", "1").run(work) == Once("ran", "sent", None)
    assert states(locks, "a") == [("1", "done", 1)]


def test_what_takes_too_long_has_failed() -> None:
    server = TestServer()
    locks = server.locks()

    def hangs(run: JobRun) -> None:
        assert run.lock.wait_lost(60) == "held_too_long"
        run.lock.check()

    with as_time_goes(server), pytest.raises(lockwell.LostError):
        locks.once("a", "1", max_hold=5).run(hangs)
    assert states(locks, "a") == [("1", "failed", 1)]

    async def main() -> None:
        async def hangs(run: JobRun) -> None:
            await asyncio.Event().wait()

        with as_time_goes(server), pytest.raises(lockwell.LostError):
            await locks.once("a", "2", max_hold=5).arun(hangs)

    asyncio.run(main())
    assert states(locks, "a")[0] == ("2", "failed", 1)


def test_who_waits_leaves_what_has_failed_meanwhile() -> None:
    server = TestServer()
    locks = server.locks()
    ends: list[str] = []

    def fails_when_another_waits(run: JobRun) -> None:
        def waits() -> None:
            ends.append(locks.once("a", "1").run(attempt).state)

        thread = threading.Thread(target=waits)
        thread.start()
        threads.append(thread)
        while not locks.inspect("a").waiters:
            time.sleep(0.001)
        raise Broken

    threads: list[threading.Thread] = []
    with pytest.raises(Broken):
        locks.once("a", "1").run(fails_when_another_waits)
    threads[0].join(60)
    assert ends == ["failed_elsewhere"]


def test_what_is_refused() -> None:
    locks = TestServer().locks()
    for key, attempts in [("", 3), ("a\n", 3), ("x" * 101, 3), ("1", 0), ("1", -1), ("1", 2**32)]:
        with pytest.raises(lockwell.InvalidInputError):
            locks.once("a", key, attempts=attempts).run(attempt)

    async def main() -> None:
        with pytest.raises(lockwell.UnsupportedError):
            locks.once("a", "1").run(attempt)

    asyncio.run(main())
    with pytest.raises(TypeError):
        locks.once("a", "1", attemps=1)  # type: ignore[call-arg]


def test_the_example_of_the_guide(tmp_path: Path) -> None:
    page = (ROOT / "docs/jobs.md").read_text(encoding="utf-8")
    [code] = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    for said in ("ran\n", "done\n"):
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=100
        )
        assert (done.stdout, done.stderr) == (said, ""), done
