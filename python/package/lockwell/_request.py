"""Requests for locks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from types import TracebackType
from typing import Any, Generic, TypeVar

from . import _aio, _log
from ._errors import UnsupportedError
from ._lock import Lock, LockSet
from ._native import Op
from ._wait import wait

H = TypeVar("H", Lock, LockSet)
T = TypeVar("T")


class Request(Generic[H]):
    """A request for a lock, or for several: nothing is sent before it is used.

    ``with request as lock:`` holds it in a block, ``async with`` does so on asyncio. ``acquire()`` and
    ``await request`` return the lock, which must be released then.
    """

    __slots__ = ("_begin", "_held", "_wrap")

    def __init__(self, begin: Callable[[bool], Op], wrap: Callable[[Any], H]) -> None:
        self._begin = begin
        self._wrap: Callable[[Any], H] = wrap
        self._held: H | None = None

    def _start(self, now: bool = False) -> Op:
        _log.refresh()
        return self._begin(now)

    def acquire(self) -> H:
        """Waits for the lock. An exception, such as that of Ctrl-C, withdraws the claim."""
        if _aio.loop_is_running():
            raise UnsupportedError(
                "a blocking call would stop the event loop that runs on this thread: "
                "use `async with` or `await`, or a thread, as of asyncio.to_thread"
            )
        return self._wrap(wait(self._start()))

    def try_now(self) -> H | None:
        """Takes the lock if it is free now; None if another claim holds it."""
        held = wait(self._start(now=True))
        return None if held is None else self._wrap(held)

    async def atry_now(self) -> H | None:
        """As ``try_now``, for asyncio."""
        held = await _aio.finished(self._start(now=True))
        return None if held is None else self._wrap(held)

    async def _acquired(self) -> H:
        return self._wrap(await _aio.finished(self._start()))

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
        self._check_free()
        held = self._held = self.acquire()
        held.__enter__()
        return held

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end().__exit__(kind, error, trace)

    async def __aenter__(self) -> H:
        self._check_free()
        held = self._held = await self._acquired()
        await held.__aenter__()
        return held

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end().__aexit__(kind, error, trace)

    def _check_free(self) -> None:
        if self._held is not None:
            raise RuntimeError("this request is in use: make one for each block")

    def _end(self) -> H:
        held, self._held = self._held, None
        assert held is not None, "entered before"
        return held
