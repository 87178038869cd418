"""The API for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import random
import threading
import time
from collections.abc import Iterator

import pytest

import lockwell
from lockwell.testing import TestServer
from servers import also_on_etcd


async def gone(locks: lockwell.Locks, name: str) -> None:
    """Waits until nobody holds the lock or waits for it."""
    async with asyncio.timeout(60):
        while (status := await locks.ainspect(name)).is_held or status.waiters:
            await asyncio.sleep(0.01)


@also_on_etcd
def test_the_same_requests(url: str, name: str) -> None:
    async def main() -> None:
        async with await lockwell.aconnect(url) as locks:
            async with locks.lock(name, ttl=10, wait=5) as lock:
                assert lock.is_held and lock.token > 0
                assert await locks.lock(name).atry_now() is None
                with pytest.raises(lockwell.TimedOutError):
                    await locks.lock(name, wait=0.05)
                await lock.adowngrade()
                async with locks.read(name):
                    pass
            assert lock.state == "released"
            held = await locks.permit(name + "/permit", 2)
            assert (await locks.ainspect(name + "/permit")).holders[0].permits == 2
            assert name + "/permit" in [status.name for status in await locks.aheld()]
            await held.arelease()
            async with locks.lock_all([name + "/b", name + "/a"]) as both:
                assert both.is_held
            assert await locks.lock(name).arun(asyncio.sleep, 0, "value") == "value"
            await gone(locks, name)

    asyncio.run(main())


def test_a_coroutine_is_stopped_when_its_lock_is_lost(url: str, name: str) -> None:
    async def main() -> None:
        async with await lockwell.aconnect(url) as locks:
            with pytest.raises(lockwell.LostError):
                async with locks.lock(name, ttl=1) as lock:
                    waits = asyncio.create_task(lock.lost())
                    assert await locks.aforce_release(name) == 1
                    await asyncio.sleep(600)
            assert await waits == "taken"
            # A task that was stopped by a loss goes on as usual.
            task = asyncio.current_task()
            assert task is not None and task.cancelling() == 0
            with pytest.raises(lockwell.LostError):
                async with locks.lock(name, ttl=1) as lock:
                    await lock.adowngrade()
                    await locks.aforce_release(name)
                    await asyncio.sleep(600)
            async with locks.lock(name, ttl=1) as lock:
                waits = asyncio.create_task(lock.lost())
                await asyncio.sleep(0)
            assert await waits is None

    asyncio.run(main())


def test_a_loss_and_other_cancellations(memory: lockwell.Locks) -> None:
    server = TestServer()

    async def main() -> None:
        locks = server.locks()

        async def hold() -> None:
            async with locks.lock("other"):
                await asyncio.sleep(600)

        # The cancellation of another is not the loss of the lock.
        task = asyncio.create_task(hold())
        while not (await locks.ainspect("other")).is_held:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await gone(locks, "other")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05), locks.lock("other"):
                await asyncio.sleep(600)
        await gone(locks, "other")
        # Both: whoever has cancelled the task sees its end.
        task = asyncio.create_task(hold())
        while not (await locks.ainspect("other")).is_held:
            await asyncio.sleep(0.01)
        server.advance(600)
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises((asyncio.CancelledError, lockwell.LostError)):
            await task
        # An exception of the block is the exception of the block.
        with pytest.raises(ZeroDivisionError):
            async with locks.lock("other"):
                server.advance(600)
                1 / 0

    asyncio.run(main())


@also_on_etcd
def test_a_cancelled_coroutine_leaves_nothing(url: str, name: str) -> None:
    async def main() -> None:
        async with await lockwell.aconnect(url, server_order=True) as locks:
            async with locks.lock(name):
                waits = [asyncio.create_task(locks.lock(name)._acquired()) for _ in range(3)]
                async with asyncio.timeout(60):
                    while (await locks.ainspect(name)).waiters < 3:
                        await asyncio.sleep(0.01)
                for task in waits:
                    task.cancel()
                assert all(
                    isinstance(end, asyncio.CancelledError)
                    for end in await asyncio.gather(*waits, return_exceptions=True)
                )
            await gone(locks, name)
            assert locks.stats.held == 0

    asyncio.run(main())


def test_cancellations_at_any_moment(memory: lockwell.Locks) -> None:
    random.seed(1)

    async def work() -> None:
        async with memory.lock("moment"):
            await asyncio.sleep(random.uniform(0, 0.001))

    async def main() -> None:
        for _ in range(300):
            task = asyncio.create_task(work())
            await asyncio.sleep(random.uniform(0, 0.002))
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await gone(memory, "moment")
        assert memory.stats.held == 0

    asyncio.run(main())


def test_waiting_coroutines_need_no_threads() -> None:
    locks = lockwell.connect("memory://", server_order=True)

    async def work() -> None:
        async with locks.lock("many"):
            pass

    async def main() -> None:
        async with locks.lock("many"):
            before = len(os.listdir("/proc/self/task"))
            tasks = [asyncio.create_task(work()) for _ in range(500)]
            while (await locks.ainspect("many")).waiters < 500:
                await asyncio.sleep(0.01)
            assert len(os.listdir("/proc/self/task")) == before
        await asyncio.gather(*tasks)

    asyncio.run(main())


def test_a_blocked_loop_keeps_its_locks(some_url: str, name: str) -> None:
    async def main() -> None:
        async with await lockwell.aconnect(some_url) as locks, locks.lock(name, ttl=1) as lock:
            time.sleep(2)
            assert lock.is_held
            assert (await locks.ainspect(name)).holders[0].token == lock.token

    asyncio.run(main())


def test_a_blocking_call_does_not_stop_a_loop(memory: lockwell.Locks) -> None:
    async def main() -> None:
        with pytest.raises(lockwell.UnsupportedError, match="async with"):
            memory.lock("blocking").acquire()
        lock = await asyncio.to_thread(memory.lock("blocking").acquire)
        await lock.arelease()

    asyncio.run(main())


def test_loops_share_a_client(memory: lockwell.Locks) -> None:
    counter = {"in": 0, "sum": 0}

    async def work() -> None:
        for _ in range(20):
            async with memory.lock("loops"):
                counter["in"] += 1
                await asyncio.sleep(0)
                assert counter["in"] == 1
                counter["in"] -= 1
                counter["sum"] += 1

    threads = [threading.Thread(target=lambda: asyncio.run(work())) for _ in range(3)]
    for thread in threads:
        thread.start()
    asyncio.run(work())
    for thread in threads:
        thread.join(60)
    assert counter == {"in": 0, "sum": 80}


def test_a_decorated_coroutine_and_a_leader(memory: lockwell.Locks) -> None:
    terms: list[int] = []

    @memory.exclusive("decorated")
    async def nightly(number: int) -> int:
        assert (await memory.ainspect("decorated")).is_held
        return number + 1

    async def lead(lock: lockwell.Lock) -> str:
        terms.append(lock.token)
        if len(terms) == 1:
            await memory.aforce_release("scheduler")
            await asyncio.sleep(600)
        return "done"

    async def main() -> None:
        assert await nightly(41) == 42
        assert await memory.arun_as_leader("scheduler", lead, ttl=1) == "done"
        assert len(terms) == 2
        async for leader in memory.observe("scheduler", every=0.01):
            assert leader is None
            break

    asyncio.run(main())
    with pytest.raises(TypeError, match="generator"):

        @memory.exclusive("decorated")
        def numbers() -> object:
            yield 1


def test_an_error_of_the_leaders_work(memory: lockwell.Locks) -> None:
    def lead(lock: lockwell.Lock) -> None:
        with memory.lock("inner"):
            memory.lock("inner", wait=0).acquire()

    with pytest.raises(lockwell.TimedOutError):
        memory.run_as_leader("scheduler", lead)
    server = TestServer()
    server.fail("acquire", "unreachable", times=2)
    with while_time_passes(server):
        assert server.locks().run_as_leader("scheduler", lambda lock: lock.is_held)


@contextlib.contextmanager
def while_time_passes(server: TestServer) -> Iterator[None]:
    over = threading.Event()

    def move() -> None:
        while not over.wait(0.001):
            server.advance(0.02)

    thread = threading.Thread(target=move)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_a_campaign_ends_with_its_wait_although_the_server_is_away() -> None:
    server = TestServer()
    server.fail("acquire", "unreachable")
    locks = server.locks()

    async def lead(lock: lockwell.Lock) -> None:
        pass

    with while_time_passes(server):
        with pytest.raises(lockwell.UnreachableError):
            locks.run_as_leader("scheduler", lambda lock: None, wait=0.3)
        with pytest.raises(lockwell.UnreachableError):
            asyncio.run(locks.arun_as_leader("scheduler", lead, wait=0.3))


def test_a_loop_that_is_closed_with_a_pending_task_keeps_nothing(memory: lockwell.Locks) -> None:
    files = len(os.listdir("/proc/self/fd"))

    async def hold(held: asyncio.Event) -> None:
        async with memory.lock("pending"):
            held.set()
            await asyncio.sleep(600)

    async def begin() -> None:
        held = asyncio.Event()
        tasks.append(asyncio.create_task(hold(held)))
        await held.wait()

    tasks: list[asyncio.Task[None]] = []
    loop = asyncio.new_event_loop()
    loop.run_until_complete(begin())
    loop.close()
    del loop
    tasks.clear()
    gc.collect()
    memory.lock("pending", wait=30).acquire().release()
    assert len(os.listdir("/proc/self/fd")) <= files + 2, "the mailbox of this thread alone is new"


def test_an_observer_that_is_cancelled_misses_no_change(memory: lockwell.Locks) -> None:
    async def main() -> None:
        changes = memory.observe("changes", every=0.01)
        assert await anext(changes) is None
        async with memory.campaign("changes") as lock:
            task = asyncio.create_task(changes.__anext__())  # type: ignore[arg-type]
            await asyncio.sleep(0)
            # The loop is blocked while the operation ends.
            time.sleep(1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            async with asyncio.timeout(30):
                leader = await anext(changes)
            assert leader is not None and leader.token == lock.token

    asyncio.run(main())
