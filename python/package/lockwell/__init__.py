"""One distributed lock, any backend: PostgreSQL, MySQL, MariaDB, SQLite, Redis, ZooKeeper, etcd.

    with lockwell.connect("sqlite://locks.db").lock("nightly", ttl=10, wait=5) as lock:
        print("nobody else does it now; the fencing token is", lock.token)

The same request works with ``async with`` on asyncio. A native thread renews the leases, whatever Python does
meanwhile.
"""

from . import _process as _process
from ._connect import aconnect, connect, per_process
from ._errors import (
    ClaimCancelledError,
    ClosedError,
    ConflictError,
    ForkedError,
    GracePeriodError,
    HeldError,
    InternalError,
    InvalidInputError,
    KindClashError,
    LockwellError,
    LostError,
    MisconfiguredError,
    NotHeldError,
    OverloadedError,
    RefusedError,
    TimedOutError,
    UnknownOutcomeError,
    UnreachableError,
    UnsupportedError,
    WouldDeadlockError,
)
from ._events import Event, Events
from ._facts import Finding, Holder, Leases, Record, Stats, Status, WaitingClaim
from ._leader import Leader, Observation
from ._lock import Lock, LockSet
from ._locks import Locks
from ._native import __version__
from ._once import Job, JobRun, Once, OnceRequest
from ._owner import Owner
from ._request import Request

__all__ = [
    "ClaimCancelledError",
    "ClosedError",
    "ConflictError",
    "Event",
    "Events",
    "Finding",
    "ForkedError",
    "GracePeriodError",
    "HeldError",
    "Holder",
    "InternalError",
    "InvalidInputError",
    "Job",
    "JobRun",
    "KindClashError",
    "Leader",
    "Leases",
    "Lock",
    "LockSet",
    "Locks",
    "LockwellError",
    "LostError",
    "MisconfiguredError",
    "NotHeldError",
    "Observation",
    "Once",
    "OnceRequest",
    "OverloadedError",
    "Owner",
    "Record",
    "RefusedError",
    "Request",
    "Stats",
    "Status",
    "TimedOutError",
    "UnknownOutcomeError",
    "UnreachableError",
    "UnsupportedError",
    "WaitingClaim",
    "WouldDeadlockError",
    "__version__",
    "aconnect",
    "connect",
    "per_process",
]
