"""Owners: re-entrant locks."""

from __future__ import annotations

from functools import partial
from typing import Unpack

from . import _native
from ._lock import Lock
from ._options import Options, native
from ._request import Request


class Owner:
    """An owner of re-entrant locks; ``locks.owner()`` makes it. It may take a lock again that it holds.

    Taking a name again succeeds at once, without a request to the server, and yields the same token: it is
    the same hold, with the ttl and the limits of the first request. The lock is released with the last
    ``Lock`` of it. Two owners exclude each other; threads and tasks that share an owner do not.

    A writer may take its lock again as a reader, and stays a writer. A reader cannot become a writer:
    ``WouldDeadlockError``. The lock of an owner has no ``downgrade``. If it is lost, each ``Lock`` of it is.
    What waits for a loss ends when the last of them is released.
    """

    def __init__(self, owner: _native.Owner) -> None:
        self._owner = owner

    def _one(self, kind: str, name: str, limit: int, options: Options) -> Request[Lock]:
        return Request(partial(self._owner.acquire, kind, name, limit, native(options)), Lock)

    def lock(self, name: str, **options: Unpack[Options]) -> Request[Lock]:
        """A request for the exclusive lock of this name. Options: see ``Locks``."""
        return self._one("exclusive", name, 1, options)

    def write(self, name: str, **options: Unpack[Options]) -> Request[Lock]:
        """The writer's side of a reader-writer lock. The same as ``lock``."""
        return self._one("exclusive", name, 1, options)

    def read(self, name: str, **options: Unpack[Options]) -> Request[Lock]:
        """The reader's side of a reader-writer lock."""
        return self._one("shared", name, 1, options)

    def permit(self, name: str, limit: int, **options: Unpack[Options]) -> Request[Lock]:
        """One of ``limit`` permits of a semaphore."""
        return self._one("permit", name, limit, options)
