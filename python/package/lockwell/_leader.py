"""Leader election: the holder of a lock is the leader."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from ._errors import LockwellError, LostError
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


def _lost(error: LockwellError, lock: Lock | None) -> bool:
    """Whether leadership was lost, so that another campaign begins. Any other error is one of the work, or of
    a campaign, which has tried again for as long as its wait allows.
    """
    if lock is None:
        return False
    at_release = (error.operation, error.lock) == ("release", lock.name)
    return lock.loss is not None or (at_release and isinstance(error, LostError))


def run_as_leader(request: Callable[[], Request[Lock]], work: Callable[[Lock], T]) -> T:
    while True:
        lock = None
        try:
            with request() as lock:
                value = work(lock)
            return value
        except LockwellError as error:
            if not _lost(error, lock):
                raise


async def arun_as_leader(request: Callable[[], Request[Lock]], work: Callable[[Lock], Awaitable[T]]) -> T:
    while True:
        lock = None
        try:
            async with request() as lock:
                value = await work(lock)
            return value
        except LockwellError as error:
            if not _lost(error, lock):
                raise
