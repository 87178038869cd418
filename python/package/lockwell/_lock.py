"""Held locks."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ._aio import finished
from ._background import Background
from ._block import Block
from ._errors import ForkedError, LostError
from ._facts import Record, record
from ._native import Guard, Op, shielded
from ._times import Seconds, seconds
from ._verify import verify
from ._wait import wait

_callbacks = Background("lockwell-callbacks")


class Lock(Block):
    """A held lock.

    The native part renews its lease until it is released or lost: whatever Python does meanwhile. A lock that
    is dropped without a release is released in the background, with a ``ResourceWarning``.
    """

    __slots__ = ("__weakref__", "_guard", "_on_replaced")

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._on_replaced: Callable[[], object] | None = None

    def _parts(self) -> Iterable[Lock]:
        return (self,)

    @property
    def name(self) -> str:
        """The name of the lock."""
        return self._guard.name

    @property
    def token(self) -> int:
        """The fencing token: higher than that of every earlier holder of this name.

        A resource that remembers the highest token can refuse a holder that was paused and has lost its lock.
        """
        return self._guard.token

    @property
    def hold_id(self) -> str:
        """The identity of this hold, which is not secret: a resource stores it beside the token."""
        return self._guard.hold_id

    @property
    def mode(self) -> str:
        """How it is held: ``exclusive``, ``shared`` or ``permit``."""
        return self._guard.mode[0]

    @property
    def is_held(self) -> bool:
        """Whether the lock is held now, by the clock. It sends nothing."""
        return self._guard.is_held

    @property
    def state(self) -> str:
        """``held``; ``suspect``: a renewal is overdue; ``lost``; or ``released``."""
        return self._guard.state[0]

    @property
    def loss(self) -> str | None:
        """Why the lock was lost: ``expired``, ``taken``, ``held_too_long`` or ``no_progress``. None: it is
        not lost.
        """
        return self._guard.state[1]

    @property
    def renewal_failure(self) -> str | None:
        """Why the last renewal has failed, if none has succeeded since."""
        return self._guard.renewal_failure

    @property
    def time_left(self) -> float:
        """Seconds until the lease ends, unless it is renewed. 0 once the lock is lost."""
        return self._guard.time_left

    def check(self) -> None:
        """Raises ``LostError`` if the lock is not held now. It sends nothing: call it between the steps of
        the work.
        """
        self._guard.check()

    def progress(self) -> None:
        """Reports progress, for a lock that was requested with ``progress_within=``."""
        self._guard.progress()

    def verify_in(self, transaction: Any) -> None:
        """Checks, in a transaction of the lock's own PostgreSQL, MySQL or MariaDB database, that the lock is
        held, and keeps it from changing hands until the transaction ends: what the transaction writes is
        written under the lock or not at all.

        ``transaction`` is a connection or a cursor of a driver or of Django, or a ``Connection`` or
        ``Session`` of SQLAlchemy. Call this first in the transaction, commit before the release, and keep the
        transaction shorter than half of the ttl.

        ``LostError``: the lock is lost. Roll back after any exception.
        """
        verify(self.name, self.verify_statement(), transaction)

    def verify_statement(self) -> str:
        """What ``verify_in`` sends, for other clients, such as those for asyncio: if it finds no row, the
        lock is lost. It contains the secret by which the lock is released, so do not log it.
        """
        return self._guard.verify_statement()

    def write_record(self, value: bytes) -> None:
        """Writes the record of the lock: up to 16 KiB, for the next holders and for ``Locks.record``. It
        outlives the hold. An empty value removes it.

        ``LostError``: this hold is not the present one any more. ``InvalidInputError``: only a writer writes.
        After another error it may have been written; the next write replaces it in any case.
        """
        wait(self._guard.write_record(value))

    async def awrite_record(self, value: bytes) -> None:
        """As ``write_record``, for asyncio. If this is cancelled, it may or may not be written."""
        await finished(self._guard.write_record(value))

    def read_record(self) -> Record | None:
        """The record as the holder before has left it, or this one has written it. None: there is none."""
        return record(wait(self._guard.read_record()))

    async def aread_record(self) -> Record | None:
        """As ``read_record``, for asyncio."""
        return record(await finished(self._guard.read_record()))

    @shielded
    def release(self) -> None:
        """Releases the lock, and waits for the answer of the server.

        ``LostError``: the lock was not held any more, so the work may have overlapped with that of another
        holder. ``NotHeldError``: it was released already. Any other error means that the answer is missing;
        the release goes on in the background.
        """
        wait(self._guard.release())

    async def arelease(self) -> None:
        """As ``release``, for asyncio. The release goes on in the background if this is cancelled."""
        await finished(self._guard.release())

    def downgrade(self) -> None:
        """Turns a writer into a reader without a gap. Token and hold stay; what waits for the loss of the
        writer ends.

        After an error the lock is held as before, if the mode or the backend does not allow it; otherwise it
        is released.
        """
        op = self._guard.downgrade()
        try:
            self._replace(wait(op))
        except BaseException:
            op.cancel()
            raise

    async def adowngrade(self) -> None:
        """As ``downgrade``, for asyncio. If this is cancelled, the lock is released in the background."""
        op = self._guard.downgrade()
        try:
            self._replace(await finished(op))
        except BaseException:
            op.cancel()
            raise

    def _replace(self, guard: Guard) -> None:
        self._guard = guard
        if self._on_replaced is not None:
            self._on_replaced()

    async def lost(self) -> str | None:
        """Waits for the end of the hold: the reason of a loss (see ``loss``), or None if the lock was
        released.
        """
        reason: str | None = await finished(self._guard.ended())
        return reason

    def wait_lost(self, timeout: Seconds | None = None) -> str | None:
        """As ``lost``, for threads; ``TimeoutError`` after ``timeout``."""
        reason: str | None = wait(self._guard.ended(), seconds(timeout))
        return reason

    def on_lost(self, callback: Callable[[str], object]) -> None:
        """Calls this with the reason if the lock is lost, on a thread that all callbacks share."""
        ended = self._guard.ended()

        def end() -> None:
            reason = ended.result()
            if reason is not None:
                callback(reason)

        _callbacks.expect(ended, end)

    def __repr__(self) -> str:
        try:
            return f"<lockwell.Lock {self.name!r} token={self.token} {self.state}>"
        except ForkedError as error:
            return f"<lockwell.Lock: {error}>"

    def __del__(self) -> None:
        guard = getattr(self, "_guard", None)
        if guard is not None and guard.is_open():
            text = f"a lock was not released: {self!r}"
            # First: where warnings are errors, the exception keeps this lock.
            guard.drop_soon()
            warnings.warn(text, ResourceWarning, stacklevel=2, source=self)


class LockSet(Block):
    """Several locks that are held together. Work under them is protected only while all of them are held."""

    __slots__ = ("locks",)

    def __init__(self, guards: list[Guard]) -> None:
        self.locks: tuple[Lock, ...] = tuple(map(Lock, guards))
        """The locks, in the order of their names."""

    def _parts(self) -> Iterable[Lock]:
        return self.locks

    def __iter__(self) -> Iterator[Lock]:
        return iter(self.locks)

    def __len__(self) -> int:
        return len(self.locks)

    def __getitem__(self, name: str) -> Lock:
        for lock in self.locks:
            if lock.name == name:
                return lock
        raise KeyError(name)

    @property
    def is_held(self) -> bool:
        """Whether all of them are held now."""
        return all(lock.is_held for lock in self.locks)

    def check(self) -> None:
        """Raises ``LostError`` if one of them is not held now."""
        for lock in self.locks:
            lock.check()

    def verify_in(self, transaction: Any) -> None:
        """``Lock.verify_in`` for all of them."""
        for lock in self.locks:
            lock.verify_in(transaction)

    def progress(self) -> None:
        """Reports progress for all of them."""
        for lock in self.locks:
            lock.progress()

    @shielded
    def release(self) -> None:
        """Releases those that were not released, at the same time. If one was lost, that is the error;
        otherwise the first one is.
        """
        releases, errors = self._begin_releases()
        for op in releases:
            try:
                wait(op)
            except Exception as error:
                errors.append(error)
        _raise_first(errors)

    async def arelease(self) -> None:
        """As ``release``, for asyncio."""
        releases, errors = self._begin_releases()
        for op in releases:
            try:
                await finished(op)
            except Exception as error:
                errors.append(error)
        _raise_first(errors)

    async def lost(self) -> tuple[str, str] | None:
        """Waits for the end of the holds: name and reason (see ``Lock.loss``) of the first lock that is lost,
        or None if all were released.
        """
        lost: tuple[str, str] | None = await finished(self._first_lost())
        return lost

    def wait_lost(self, timeout: Seconds | None = None) -> tuple[str, str] | None:
        """As ``lost``, for threads; ``TimeoutError`` after ``timeout``."""
        lost: tuple[str, str] | None = wait(self._first_lost(), seconds(timeout))
        return lost

    def on_lost(self, callback: Callable[[str, str], object]) -> None:
        """Calls this with name and reason of the first lock that is lost, on a thread that all callbacks
        share.
        """
        ended = self._first_lost()

        def end() -> None:
            lost = ended.result()
            if lost is not None:
                callback(*lost)

        _callbacks.expect(ended, end)

    def _first_lost(self) -> Op:
        return Guard.first_lost([lock._guard for lock in self.locks])

    def _begin_releases(self) -> tuple[list[Op], list[Exception]]:
        """Begins the releases of those that were not released one by one."""
        releases: list[Op] = []
        errors: list[Exception] = []
        for lock in self._open() or self.locks:
            try:
                releases.append(lock._guard.release())
            except Exception as error:
                errors.append(error)
        return releases, errors

    def __repr__(self) -> str:
        return f"<lockwell.LockSet {list(self.locks)!r}>"


def _raise_first(errors: list[Exception]) -> None:
    errors.sort(key=lambda error: not isinstance(error, LostError))
    if errors:
        raise errors[0]
