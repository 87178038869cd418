"""Locks that are held in a block of ``with`` or ``async with``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self

from . import _aio, _log
from ._errors import LockwellError, LostError
from ._native import Op

if TYPE_CHECKING:
    from ._lock import Lock


class Block:
    """What is held: a block of ``with`` or ``async with`` releases it at its end.

    A block that ends raises ``LostError`` if the lock was lost before, unless the block raises another
    exception. A block of ``async with`` is cancelled at its next ``await`` when the lock is lost; a thread
    cannot be stopped, so work on threads calls ``lock.check()`` between its steps.
    """

    __slots__ = ("_watch",)
    _watch: _Watch | None

    def _parts(self) -> Iterable[Lock]:
        raise NotImplementedError

    def release(self) -> None:
        raise NotImplementedError

    async def arelease(self) -> None:
        raise NotImplementedError

    def _open(self) -> list[Lock]:
        """What was not released yet."""
        return [lock for lock in self._parts() if lock._guard.is_open()]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._open():
            return
        try:
            self.release()
        except LockwellError as failure:
            if error is None and isinstance(failure, LostError):
                raise
            _note(error, failure)

    async def __aenter__(self) -> Self:
        self._watch = _Watch(self._open())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        watch, self._watch = self._watch, None
        cancelled = watch is not None and watch.end(error)
        if not self._open():
            return
        try:
            await self.arelease()
        except LockwellError as failure:
            if cancelled or (error is None and isinstance(failure, LostError)):
                raise failure from None
            _note(error, failure)


def _note(error: BaseException | None, failure: LockwellError) -> None:
    """The work was done under the lock, and the release goes on in the background: the exception of the work
    counts.
    """
    if error is not None:
        error.add_note(f"and its lock: {failure}")
    else:
        _log.logger.warning("a release has no answer yet: %s", failure)


class _Watch:
    """Cancels the current task when the lock is lost, as ``asyncio.timeout`` does at its end."""

    def __init__(self, locks: list[Lock]) -> None:
        task = asyncio.current_task()
        assert task is not None, "async with runs in a task"
        self._task = task
        self._cancelling = task.cancelling()
        self._has_cancelled = False
        self._is_over = False
        self._box = _aio.postbox()
        self._watched: list[tuple[int, Op]] = []
        self._locks = locks
        for lock in self._locks:
            lock._on_replaced = self._again
        self._again()

    def _again(self) -> None:
        """Watches the locks as they are now: a lock that was downgraded is another one."""
        self._forget()
        for lock in self._locks:
            if lock._guard.is_open():
                ended = lock._guard.ended()
                self._watched.append((self._box.expect(ended, partial(self._on_end, ended)), ended))

    def _forget(self) -> None:
        for number, ended in self._watched:
            self._box.forget(number)
            ended.cancel()
        self._watched.clear()

    def _on_end(self, ended: Op) -> None:
        if ended.result() is not None and not self._is_over and not self._has_cancelled:
            self._has_cancelled = True
            self._task.cancel("the lock was lost")

    def end(self, error: BaseException | None) -> bool:
        """Whether the block ends because this has cancelled it."""
        self._is_over = True
        self._forget()
        for lock in self._locks:
            lock._on_replaced = None
        if not self._has_cancelled:
            return False
        others = self._task.uncancel() > self._cancelling
        return not others and isinstance(error, asyncio.CancelledError)
