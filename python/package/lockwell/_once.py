"""Jobs that run once for a key, over all hosts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from . import _aio, _log
from ._block import _Watch
from ._errors import LockwellError
from ._lock import Lock
from ._native import Attempt, Guard, Op
from ._request import _refuse_on_a_loop
from ._wait import wait

T = TypeVar("T")


@dataclass(frozen=True)
class Job:
    """What the record of a lock says about a key."""

    name: str
    key: str
    state: str
    """``done``; ``running``; ``failed``; or ``died``: begun, but its host does not hold the lock any more.
    Only ``Locks.job`` and ``Locks.jobs`` tell the last one from ``running``.
    """
    attempts: int
    """How many attempts have begun."""
    began: datetime
    """When the last one began, by the clock of its host."""
    took: float | None
    """How many seconds it took, if it has ended."""
    by: str | None
    """The label of who began it. Only the newest key of a lock has it."""
    token: int | None
    """The token with which it began. Only the newest key of a lock has it."""


@dataclass(frozen=True)
class JobRun:
    """An attempt at a job, for the job itself."""

    lock: Lock
    """The lock under which it runs. It is released when the job has ended."""
    attempt: int
    """The number of this attempt for its key, from 1."""


@dataclass(frozen=True)
class Once(Generic[T]):
    """How a job that runs once for a key has ended."""

    state: str
    """``ran``: here, and the key is done; ``done`` before; ``failed_elsewhere`` while this host waited, which
    leaves it for the next time; or ``given_up``: all attempts are used up, without success.
    """
    value: T | None
    """That of the work, if it ran here."""
    job: Job | None
    """What is known of it, if it did not run here."""


class OnceRequest:
    """A request for a job that runs once for a key: nothing is sent before it is used."""

    __slots__ = ("_begin",)

    def __init__(self, begin: Callable[[], Op]) -> None:
        self._begin = begin

    def _start(self) -> Op:
        _log.refresh()
        return self._begin()

    def run(self, work: Callable[[JobRun], T]) -> Once[T]:
        """Calls ``work(run)``, unless the key is done or has had all of its attempts. Other hosts wait
        meanwhile, and the next one takes over if this one dies.

        If the work raises an ``Exception``, or takes longer than ``max_hold``, the attempt has failed; after
        ``max_hold`` the lock is lost within three seconds. If another exception stops the work, such as that
        of Ctrl-C, or its lock is lost, the next host tries again. So the work calls ``run.lock.check()``
        between its steps.

        ``TimedOutError``: the lock was held for the whole ``wait``. ``LostError``: the work has succeeded,
        and that could not be recorded. ``UnsupportedError``: the backend does not promise ``records``.
        Nothing runs unless it could be recorded that it begins.
        """
        _refuse_on_a_loop()
        op = self._start()
        try:
            begun = wait(op)
            if begun[0] != "ran":
                return _left(*begun)
            run, attempt = _attempt(*begun)
            try:
                value = work(run)
            except Exception:
                if run.lock.loss is None:
                    wait(attempt.failed())
                    with suppress(LockwellError):
                        run.lock.release()
                raise
            wait(attempt.succeeded())
            with suppress(LockwellError):
                run.lock.release()
            return Once("ran", value, None)
        except BaseException:
            # It has the lock still, if that was not released.
            op.cancel()
            raise

    async def arun(self, work: Callable[[JobRun], Awaitable[T]]) -> Once[T]:
        """As ``run``, for asyncio. If the lock is lost, the work is cancelled, and this raises ``LostError``.
        If this is cancelled, the next host tries again.
        """
        op = self._start()
        try:
            begun = await _aio.finished(op)
            if begun[0] != "ran":
                return _left(*begun)
            run, attempt = _attempt(*begun)
            try:
                value = await _while_held(work, run)
            except Exception:
                if run.lock.loss is None:
                    await _aio.finished(attempt.failed())
                    with suppress(LockwellError):
                        await run.lock.arelease()
                raise
            await _aio.finished(attempt.succeeded())
            with suppress(LockwellError):
                await run.lock.arelease()
            return Once("ran", value, None)
        except BaseException:
            op.cancel()
            raise


async def _while_held(work: Callable[[JobRun], Awaitable[T]], run: JobRun) -> T:
    watch = _Watch([run.lock])
    try:
        watch.again()
        value = await work(run)
    except BaseException as error:
        loss = watch.end(error)
        if loss is not None:
            raise loss from None
        raise
    # A success is recorded after a loss as well.
    watch.end(None)
    return value


def _attempt(_: str, guard: Guard, attempt: Attempt) -> tuple[JobRun, Attempt]:
    return JobRun(Lock(guard), attempt.number), attempt


def _left(state: str, shown: tuple[Any, ...]) -> Once[Any]:
    return Once(state, None, job(shown))


def job(shown: tuple[Any, ...]) -> Job:
    name, key, state, attempts, began, *others = shown
    return Job(name, key, state, attempts, datetime.fromtimestamp(began, UTC), *others)
