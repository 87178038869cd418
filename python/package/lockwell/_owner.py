"""Owners: re-entrant locks."""

from __future__ import annotations

from . import _native
from ._requests import Requests


class Owner(Requests):
    """An owner of re-entrant locks; ``locks.owner()`` makes it. It may take a lock again that it holds.

    Taking a name again succeeds at once, without a request to the server, and yields the same token: it is
    the same hold, with the ttl and the limits of the first request. The lock is released with the last
    ``Lock`` of it. Two owners exclude each other; threads and tasks that share an owner do not.

    A writer may take its lock again as a reader, and stays a writer. A reader cannot become a writer:
    ``WouldDeadlockError``. The lock of an owner has no ``downgrade``. If it is lost, each ``Lock`` of it is.
    What waits for a loss ends when the last of them is released.

    Requests have the options that those of ``Locks`` have.
    """

    def __init__(self, owner: _native.Owner) -> None:
        self._owner = owner

    @property
    def _claimant(self) -> _native.Owner:
        return self._owner
