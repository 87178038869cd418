"""The ends of blocks: what is released, and which exception leaves them."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from types import FrameType
from typing import Any

import pytest

import lockwell
from lockwell import _block
from lockwell.testing import TestServer


def assert_free(locks: lockwell.Locks, name: str) -> None:
    """A release in the background may take a moment."""
    locks.lock(name, wait=30).acquire().release()


def test_a_part_that_was_released_does_not_keep_the_others(memory: lockwell.Locks) -> None:
    with memory.lock_all(["part/a", "part/b"]) as both:
        both["part/a"].release()
    assert not memory.inspect("part/b").is_held
    with pytest.raises(lockwell.NotHeldError):
        both.release()

    async def main() -> None:
        async with memory.lock_all(["part/a", "part/b"]) as both:
            await both["part/a"].arelease()
        assert not (await memory.ainspect("part/b")).is_held

    asyncio.run(main())


def test_threads_cannot_share_a_request(memory: lockwell.Locks) -> None:
    request = memory.permit("shared", 2)
    entered, leave = threading.Event(), threading.Event()

    def first() -> None:
        with request:
            entered.set()
            leave.wait(60)

    with memory.permit("shared", 2) as one, memory.permit("shared", 2) as other:
        thread = threading.Thread(target=first)
        thread.start()
        while not memory.inspect("shared").waiters:
            pass
        # It waits still.
        with pytest.raises(RuntimeError, match="in use"), request:
            pass
        one.release()
        assert entered.wait(60)
        with pytest.raises(RuntimeError, match="in use"), request:
            pass
        other.release()
    leave.set()
    thread.join(60)
    with request:
        pass


# What an interrupt leaves is released by the collector, with a warning.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_an_interrupt_at_any_call_leaves_nothing_held(memory: lockwell.Locks) -> None:
    for call in range(1, 1000):
        request = memory.lock_all(["interrupt/a", "interrupt/b"])
        left = call

        def trace(frame: FrameType, event: str, argument: Any) -> None:
            nonlocal left
            code = frame.f_code
            # No handler can be around the entry of `__exit__`.
            if "/lockwell/" not in code.co_filename or code.co_qualname in (
                "Request.__exit__",
                "Lock.__del__",
            ):
                return
            left -= 1
            if not left:
                sys.settrace(None)
                raise KeyboardInterrupt

        held: Any = None
        before = sys.gettrace()
        with contextlib.suppress(KeyboardInterrupt):
            sys.settrace(trace)
            with request as held:
                pass
        sys.settrace(before)
        assert_free(memory, "interrupt/a")
        assert_free(memory, "interrupt/b")
        del held
        if left:
            break
    assert 10 < call < 999


def test_a_block_that_cannot_watch_its_lock_does_not_hold_it(
    memory: lockwell.Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(locks: object) -> None:
        raise OSError("too many open files")

    async def main() -> None:
        request = memory.lock("unwatched")
        monkeypatch.setattr(_block, "_Watch", fails)
        # The traceback is alive, and with it what its frames refer to.
        with pytest.raises(OSError, match="too many") as raised:
            async with request:
                pass
        monkeypatch.undo()
        await (await memory.lock("unwatched", wait=30)).arelease()
        async with request:
            pass
        assert raised.value.__traceback__ is not None

    asyncio.run(main())


def test_a_client_that_cannot_be_closed_does_not_hide_the_exception() -> None:
    async def block(locks: lockwell.Locks) -> None:
        async with locks:
            raise asyncio.CancelledError

    with pytest.raises(SystemExit) as raised, never_closed():
        raise SystemExit(3)
    assert "no answer" in raised.value.__notes__[0]
    with pytest.raises(asyncio.CancelledError) as cancelled:
        asyncio.run(block(never_closed()))
    assert "no answer" in cancelled.value.__notes__[0]
    with pytest.raises(lockwell.UnknownOutcomeError), never_closed():
        pass


def never_closed() -> lockwell.Locks:
    """A client whose `close` fails."""

    class Never:
        def close(self, limit: float) -> None:
            raise lockwell.UnknownOutcomeError("1 release has no answer")

    return lockwell.Locks(Never())  # type: ignore[arg-type]


def test_a_loss_is_an_exception_though_the_body_has_released_the_lock() -> None:
    server = TestServer()

    async def main() -> None:
        locks = server.locks()
        with pytest.raises(lockwell.LostError) as raised:
            async with locks.lock("released") as lock:
                try:
                    await server_takes(lock)
                finally:
                    with contextlib.suppress(lockwell.LockwellError):
                        await lock.arelease()
        assert raised.value.lock == "released" and "taken" in str(raised.value)
        # The other one was not lost, and its release succeeds.
        with pytest.raises(lockwell.LostError) as raised:
            async with locks.lock_all(["released", "other"]) as both:
                try:
                    await server_takes(both["released"])
                finally:
                    with contextlib.suppress(lockwell.LockwellError):
                        await both["released"].arelease()
        assert raised.value.lock == "released"
        assert not (await locks.ainspect("other")).is_held
        task = asyncio.current_task()
        assert task is not None and task.cancelling() == 0

    async def server_takes(lock: lockwell.Lock) -> None:
        await asyncio.to_thread(server.lose, lock.name)
        await asyncio.sleep(600)

    asyncio.run(main())
