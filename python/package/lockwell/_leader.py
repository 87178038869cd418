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
        return self._next(_leader)

    def __aiter__(self) -> AsyncIterator[Leader | None]:
        return self

    async def __anext__(self) -> Leader | None:
        return await self._anext(_leader)


def _leader(leader: tuple[int, str] | None) -> Leader | None:
    return None if leader is None else Leader(*leader)


class _Campaign:
    """The tries of one campaign, which share its wait. None: there is no limit."""

    def __init__(self, request: Callable[..., Request[Lock]], wait: float | None) -> None:
        self._request = request
        self._wait = wait
        self._begin()

    def _begin(self) -> None:
        self._tries = 0
        self._began = time.monotonic()

    def next_request(self) -> Request[Lock]:
        wait = self._wait
        if wait is not None and self._tries:
            wait = max(0.0, self._began + wait - time.monotonic())
        return self._request(wait=wait)

    def pause_after(self, error: LockwellError, lock: Lock | None) -> float:
        """The seconds before the next try, if this error leaves one. After a loss of leadership another
        campaign begins.
        """
        if lock is None:
            is_over = self._wait is not None and time.monotonic() >= self._began + self._wait
            if is_over or not error.retryable or isinstance(error, TimedOutError):
                raise error
            self._tries += 1
            return min(5.0, 0.1 * 2.0 ** min(self._tries, 10)) * random.uniform(0.5, 1.0)
        at_release = (error.operation, error.lock) == ("release", lock.name)
        if lock.loss is None and not (at_release and isinstance(error, LostError)):
            # Leadership was not lost: it is an error of the work.
            raise error
        self._begin()
        return 0.0


def run_as_leader(request: Callable[..., Request[Lock]], wait: float | None, work: Callable[[Lock], T]) -> T:
    campaign = _Campaign(request, wait)
    while True:
        lock = None
        try:
            with campaign.next_request() as lock:
                value = work(lock)
            return value
        except LockwellError as error:
            time.sleep(campaign.pause_after(error, lock))


async def arun_as_leader(
    request: Callable[..., Request[Lock]], wait: float | None, work: Callable[[Lock], Awaitable[T]]
) -> T:
    campaign = _Campaign(request, wait)
    while True:
        lock = None
        try:
            async with campaign.next_request() as lock:
                value = await work(lock)
            return value
        except LockwellError as error:
            await asyncio.sleep(campaign.pause_after(error, lock))
