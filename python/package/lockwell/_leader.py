"""Leader election: the holder of a lock is the leader."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from ._errors import LockwellError, LostError, TimedOutError
from ._lock import Lock
from ._native import Observer
from ._request import Request
from ._stream import Stream

T = TypeVar("T")


@dataclass(frozen=True)
class Leader:
    """The leader, as the server knows it."""

    token: int
    """The fencing token of this term."""
    label: str
    """The label of its campaign: host and process, unless another was chosen."""


class Observation(Stream):
    """The leaders of a name: first the present one, then each change. None: there is no leader. It has no
    end.

    It asks once a second, or ``every`` so many seconds, so it can miss shorter changes. For display, not for
    decisions.
    """

    def __init__(self, observer: Observer) -> None:
        super().__init__(observer.next)

    def __iter__(self) -> Iterator[Leader | None]:
        return self

    def __next__(self) -> Leader | None:
        return _leader(self._next())

    def __aiter__(self) -> AsyncIterator[Leader | None]:
        return self

    async def __anext__(self) -> Leader | None:
        return _leader(await self._anext())


def _leader(leader: tuple[int, str] | None) -> Leader | None:
    return None if leader is None else Leader(*leader)


def _pause(tries: int) -> float:
    """The seconds after a campaign that has failed for the time being."""
    return min(5.0, 0.1 * 2.0 ** min(tries, 10)) * random.uniform(0.5, 1.0)


def run_as_leader(campaign: Callable[[], Request[Lock]], work: Callable[[Lock], T]) -> T:
    tries = 0
    while True:
        lock = None
        try:
            with campaign() as lock:
                value = work(lock)
            return value
        except LockwellError as error:
            tries = _after(error, lock, tries)
            if lock is None:
                time.sleep(_pause(tries))


async def arun_as_leader(campaign: Callable[[], Request[Lock]], work: Callable[[Lock], Awaitable[T]]) -> T:
    tries = 0
    while True:
        lock = None
        try:
            async with campaign() as lock:
                value = await work(lock)
            return value
        except LockwellError as error:
            tries = _after(error, lock, tries)
            if lock is None:
                await asyncio.sleep(_pause(tries))


def _after(error: LockwellError, lock: Lock | None, tries: int) -> int:
    """The failures in a row, if the campaign goes on after this error."""
    if lock is None:
        if error.retryable and not isinstance(error, TimedOutError):
            return tries + 1
        raise error
    lost_at_release = isinstance(error, LostError) and (error.operation, error.lock) == ("release", lock.name)
    if lock.loss is None and not lost_at_release:
        # Leadership was not lost: it is an error of the work.
        raise error
    return 0
