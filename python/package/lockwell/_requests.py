"""Requests for one lock, which a client and an owner have."""

from __future__ import annotations

from functools import partial
from typing import Unpack

from . import _native
from ._lock import Lock
from ._options import Options, native
from ._request import Request


class Requests:
    """Requests for one lock."""

    @property
    def _claimant(self) -> _native.Client | _native.Owner:
        raise NotImplementedError

    def _one(self, kind: str, name: str, limit: int, options: Options) -> Request[Lock]:
        return Request(partial(self._claimant.acquire, kind, name, limit, native(options)), Lock)

    def lock(self, name: str, **options: Unpack[Options]) -> Request[Lock]:
        """A request for the exclusive lock of this name."""
        return self._one("exclusive", name, 1, options)

    def write(self, name: str, **options: Unpack[Options]) -> Request[Lock]:
        """The writer's side of a reader-writer lock. The same as ``lock``."""
        return self._one("exclusive", name, 1, options)

    def read(self, name: str, **options: Unpack[Options]) -> Request[Lock]:
        """The reader's side of a reader-writer lock: together with other readers, never with a writer."""
        return self._one("shared", name, 1, options)

    def permit(self, name: str, limit: int, **options: Unpack[Options]) -> Request[Lock]:
        """One of ``limit`` permits of a semaphore. Another limit waits until these have left."""
        return self._one("permit", name, limit, options)
