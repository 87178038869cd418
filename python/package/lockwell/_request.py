"""Requests for locks."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Generator
from types import TracebackType
from typing import Any, Generic, TypeVar

from . import _aio, _log
from ._errors import UnsupportedError
from ._lock import Lock, LockSet
from ._native import Op, shielded
from ._wait import wait

H = TypeVar("H", Lock, LockSet)
T = TypeVar("T")


class Request(Generic[H]):
    """A request for a lock, or for several: nothing is sent before it is used.

    ``with request as lock:`` holds it in a block, ``async with`` does so on asyncio. ``acquire()`` and
    ``await request`` return the lock, which must be released then.
    """

    __slots__ = ("_begin", "_held", "_in_use", "_wrap")

    def __init__(self, begin: Callable[[bool, bool], Op], wrap: Callable[[Any], H]) -> None:
        self._begin = begin
        self._wrap: Callable[[Any], H] = wrap
        self._held: H | None = None
        # Before it is held: two threads that share a request would release the lock of each other.
        self._in_use = threading.Lock()

    def _start(self, now: bool = False, through_grace: bool = False) -> Op:
        _log.refresh()
        return self._begin(now, through_grace)

    def acquire(self) -> H:
        """Waits for the lock. An exception, such as that of Ctrl-C, withdraws the claim."""
        _refuse_on_a_loop()
        op = self._start()
        try:
            return self._wrap(wait(op))
        except BaseException:
            # Also a lock that it has got: the traceback would keep it.
            op.cancel()
            raise

    def try_now(self, *, through_grace: bool = False) -> H | None:
        """Takes the lock if it is free now; None if another claim holds it.

        In a grace period, when the server grants nothing since it may have forgotten grants, it raises
        ``GracePeriodError``. With ``through_grace`` it waits for the end instead, which takes about as long
        as the longest lease. A request that waits for the lock waits anyway.
        """
        if through_grace:
            _refuse_on_a_loop()
        op = self._start(now=True, through_grace=through_grace)
        try:
            held = wait(op)
            return None if held is None else self._wrap(held)
        except BaseException:
            op.cancel()
            raise

    async def atry_now(self, *, through_grace: bool = False) -> H | None:
        """As ``try_now``, for asyncio."""
        op = self._start(now=True, through_grace=through_grace)
        try:
            held = await _aio.finished(op)
            return None if held is None else self._wrap(held)
        except BaseException:
            op.cancel()
            raise

    async def _acquired(self) -> H:
        op = self._start()
        try:
            return self._wrap(await _aio.finished(op))
        except BaseException:
            op.cancel()
            raise

    def __await__(self) -> Generator[Any, None, H]:
        return self._acquired().__await__()

    def run(self, work: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        """Calls ``work(*args, **kwargs)`` while the lock is held. ``LostError``: it was lost before the end
        of the work.
        """
        with self:
            return work(*args, **kwargs)

    async def arun(self, work: Callable[..., Awaitable[T]], /, *args: Any, **kwargs: Any) -> T:
        """Awaits ``work(*args, **kwargs)`` while the lock is held. If it is lost, the work is cancelled."""
        async with self:
            return await work(*args, **kwargs)

    def __enter__(self) -> H:
        self._take()
        try:
            held = self._held = self.acquire()
        except BaseException:
            self._in_use.release()
            raise
        # Nothing is called from here on: an interrupt would leave the lock held, since `with` has not begun.
        return held

    @shielded
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        held, self._held = self._held, None
        assert held is not None, "entered before"
        try:
            held.__exit__(kind, error, trace)
        finally:
            self._in_use.release()

    async def __aenter__(self) -> H:
        self._take()
        held = None
        try:
            held = await self._acquired()
            await held.__aenter__()
            self._held = held
        except BaseException:
            if held is not None:
                held._drop()
            self._in_use.release()
            raise
        return held

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        held, self._held = self._held, None
        assert held is not None, "entered before"
        try:
            await held.__aexit__(kind, error, trace)
        except BaseException:
            held._drop()
            raise
        finally:
            self._in_use.release()

    def _drop(self) -> None:
        """An exception has stopped the end of the block before it began."""
        held, self._held = self._held, None
        if held is not None:
            held._drop()
            self._in_use.release()

    def _take(self) -> None:
        if not self._in_use.acquire(blocking=False):
            raise RuntimeError("this request is in use: make one for each block")


def _refuse_on_a_loop() -> None:
    if _aio.loop_is_running():
        raise UnsupportedError(
            "a blocking call would stop the event loop that runs on this thread: "
            "use `async with` or `await`, or a thread, as of asyncio.to_thread"
        )
