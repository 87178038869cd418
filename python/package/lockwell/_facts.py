"""What is shown of locks, servers and clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Holder:
    """A holder of a lock, as the server knows it. Times are in seconds, by the server's clock. On etcd
    ``held_for`` is by the wall clocks of the holder and of the client that asks.
    """

    token: int
    label: str
    mode: str
    permits: int | None
    """For permits: how many there are."""
    ttl_left: float
    held_for: float
    traceparent: str | None = None


@dataclass(frozen=True)
class WaitingClaim:
    """One who waits for a lock, as the server knows it."""

    label: str
    mode: str
    permits: int | None
    """For a permit: how many there are."""
    waited: float | None
    """For how many seconds; None if the server does not know."""
    traceparent: str | None = None


@dataclass(frozen=True)
class Status:
    """Who holds a lock, and who waits for it. It may be outdated: for display, not for decisions."""

    name: str
    holders: tuple[Holder, ...]
    waiting: tuple[WaitingClaim, ...]
    """The first of those who wait, in order."""
    waiters: int
    longest_wait: float | None
    """For how many seconds the first waiter has waited; None if nobody waits, or the server does not know."""
    unknown_for: float | None
    """For so many seconds holders may be missing: the server may have forgotten some, and grants nothing
    meanwhile. None: these are all.
    """

    @property
    def is_held(self) -> bool:
        """Whether it has a holder."""
        return bool(self.holders)

    @property
    def is_free(self) -> bool:
        """Whether it is known that nobody holds it."""
        return not self.holders and self.unknown_for is None


@dataclass(frozen=True)
class Record:
    """What was written under a lock. Its writer held the lock then, and perhaps not now."""

    value: bytes
    token: int
    """The fencing token of the hold that has written it."""
    hold_id: str
    """That hold."""


@dataclass(frozen=True)
class Stats:
    """Counters of the work in the background."""

    held: int
    """Leases that are renewed now."""
    renewals: int
    """Leases extended."""
    renewal_calls: int
    """Requests that extended them: each has up to 500 leases."""
    renewal_failures: int
    """Renewals whose outcome is unknown; each was tried again."""
    lost: int
    """Leases that were lost."""
    release_failures: int
    """Failed releases in the background; each was tried again."""


@dataclass(frozen=True)
class Finding:
    """One thing that was checked at the server."""

    subject: str
    """What was checked, in a word, such as ``persistence`` or ``clock``."""
    severity: str
    """``good``; ``doubtful``: locks are weaker or slower than they could be, or it could not be checked; or
    ``bad``: locks can be lost or granted twice.
    """
    message: str
    remedy: str
    """What to do about it. Empty if it is good."""


@dataclass(frozen=True)
class Leases:
    """The leases that a backend can grant, in seconds."""

    shortest: float
    longest: float
    is_session_bound: bool
    """Whether a lock ends with the session of its client."""


def status(shown: tuple[Any, ...]) -> Status:
    name, holders, waiting, *others = shown
    holding = tuple(Holder(*holder) for holder in holders)
    return Status(name, holding, tuple(WaitingClaim(*claim) for claim in waiting), *others)


def record(shown: tuple[Any, ...] | None) -> Record | None:
    return None if shown is None else Record(*shown)
