"""The events of a client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

from . import _native
from ._stream import Stream


@dataclass(frozen=True)
class Event:
    """An event of a lock of this client. A hold begins with ``granted``, and ends with ``released`` or
    ``lost``.
    """

    kind: str
    """``waiting``, ``granted``, ``suspect``: a renewal is overdue, ``recovered``: it has succeeded, ``lost``,
    ``released``, or ``missed``: the reader was too slow.
    """
    name: str | None
    """The lock; None for ``missed``."""
    token: int | None
    """The fencing token of the hold; None for ``waiting`` and ``missed``."""
    mode: str | None
    """``exclusive``, ``shared`` or ``permit``, of ``waiting`` and ``granted``."""
    permits: int | None
    """For permits: how many there are."""
    loss: str | None
    """Why the lock was lost: see ``Lock.loss``."""
    missed: int
    """The number of events that were missed."""


class Events(Stream):
    """The events of a client from the moment when this was made. They end when the client is closed.

    A reader that is more than 1024 events behind misses the oldest. No lock waits for a reader.
    """

    def __init__(self, events: _native.Events) -> None:
        super().__init__(events.next)

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        event = self._next(_event)
        if event is None:
            raise StopIteration
        return event

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        event = await self._anext(_event)
        if event is None:
            raise StopAsyncIteration
        return event


def _event(event: tuple[Any, ...] | None) -> Event | None:
    return None if event is None else Event(*event)
