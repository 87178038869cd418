"""Locks that are held in a block of ``with`` or ``async with``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self

from . import _aio, _log
from ._errors import LockwellError, LostError
from ._native import Op, shielded

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

    def _drop(self) -> None:
        """Releases in the background what was not released: an exception has stopped this thread or task."""
        for lock in self._parts():
            lock._guard.drop_soon()

    @shielded
    def __enter__(self) -> Self:
        return self

    @shielded
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._open():
                self.release()
        except LockwellError as failure:
            if error is None and isinstance(failure, LostError):
                raise
            _note(error, failure)

    async def __aenter__(self) -> Self:
        watch = _Watch(self._open())
        try:
            watch.again()
        except BaseException:
            watch.end(None)
            raise
        self._watch = watch
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if isinstance(error, GeneratorExit) and not _aio.loop_is_running():
                # The collector ends the task of a loop that was closed: nothing can be awaited.
                return self._drop()
            watch, self._watch = self._watch, None
            loss = None if watch is None else watch.end(error)
            if self._open():
                await self.arelease()
        except LockwellError as failure:
            if isinstance(failure, LostError) and (error is None or loss is not None):
                raise failure from None
            _note(error, failure)
        except BaseException:
            self._drop()
            raise
        if loss is not None:
            # The block has released the lock itself, and nobody but this task knows why it was cancelled.
            raise loss from None


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
        self._loss: LostError | None = None
        self._is_over = False
        self._box = _aio.postbox()
        self._watched: list[tuple[int, Op]] = []
        self._locks = locks
        for lock in self._locks:
            lock._on_replaced = self.again

    def again(self) -> None:
        """Watches the locks as they are now: a lock that was downgraded is another one."""
        self._forget()
        for lock in self._locks:
            if lock._guard.is_open():
                ended = lock._guard.ended()
                call = partial(self._on_end, ended, lock.name)
                self._watched.append((self._box.expect(ended, call), ended))

    def _forget(self) -> None:
        for number, ended in self._watched:
            self._box.forget(number)
            ended.cancel()
        self._watched.clear()

    def _on_end(self, ended: Op, name: str) -> None:
        reason: str | None = ended.result()
        if reason is not None and not self._is_over and self._loss is None:
            self._loss = LostError(f"lock {name!r}: lost: {reason}", lock=name)
            self._task.cancel("the lock was lost")

    def end(self, error: BaseException | None) -> LostError | None:
        """The loss, if the block ends because this has cancelled it."""
        self._is_over = True
        self._forget()
        for lock in self._locks:
            lock._on_replaced = None
        if self._loss is None:
            return None
        others = self._task.uncancel() > self._cancelling
        return None if others or not isinstance(error, asyncio.CancelledError) else self._loss
