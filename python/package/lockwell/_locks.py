"""The client that applications use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from types import TracebackType
from typing import TypeVar, Unpack

from . import _leader
from ._aio import finished
from ._decorator import Decorator, Name, decorator
from ._errors import LockwellError
from ._events import Events
from ._facts import Finding, Leases, Record, Stats, Status, record, status
from ._leader import Observation
from ._lock import Lock, LockSet
from ._native import Client
from ._once import Job, OnceRequest, job
from ._options import Options, native
from ._owner import Owner
from ._request import Request
from ._requests import Requests
from ._times import Seconds, seconds
from ._wait import wait

T = TypeVar("T")


def _note(error: BaseException | None, failure: LockwellError) -> None:
    """The exception of the block goes on, and not that of the end of the client."""
    if error is None:
        raise failure
    error.add_note(f"and the client was not closed: {failure}")


class Locks(Requests):
    """A client of a lock server; ``lockwell.connect`` makes it. Threads and event loops can share it,
    processes cannot.

    All requests have these options; times are in seconds, or are a ``timedelta``:

    * ``ttl``: the lease, for which the lock stays taken after its holder has died. It is renewed after each
      third of it.
    * ``wait``: how long to wait at most; then ``TimedOutError``. None: without a limit. 0: one try.
    * ``label``: a text that names the holder; host and process, if there is none.
    * ``traceparent``: what the request is a part of, as W3C Trace Context writes it; ``inspect`` shows it.
    * ``max_hold``: the longest hold; after it the lock is lost and released.
    * ``progress_within``: the lock is lost and released if ``lock.progress()`` was not called for so long.
    * ``lock_delay``: for so long the lock of a holder that died stays taken after its lease.
    """

    def __init__(self, client: Client) -> None:
        self._only = client

    @property
    def _client(self) -> Client:
        return self._only

    @property
    def _claimant(self) -> Client:
        return self._client

    def campaign(self, name: str, **options: Unpack[Options]) -> Request[Lock]:
        """A campaign for leadership: whoever holds the lock leads."""
        return self._one("leader", name, 1, options)

    def lock_all(
        self, names: Iterable[str], *, reading: Iterable[str] = (), **options: Unpack[Options]
    ) -> Request[LockSet]:
        """Several exclusive locks, and those of ``reading`` as a reader: all of them or none, without
        deadlocks.
        """
        if isinstance(names, str) or isinstance(reading, str):
            raise TypeError("names are given as a list, not as a str")
        return Request(
            partial(self._client.acquire_all, list(names), list(reading), native(options)), LockSet
        )

    def exclusive(self, name: Name, **options: Unpack[Options]) -> Decorator:
        """A decorator: the function, or coroutine function, runs while it holds this lock.

        ``name`` is a name, or a function that makes it of the arguments of the call.
        """
        return decorator(partial(self.lock, **options), name)

    def shared(self, name: Name, **options: Unpack[Options]) -> Decorator:
        """As ``exclusive``, as a reader."""
        return decorator(partial(self.read, **options), name)

    def permitted(self, name: Name, limit: int, **options: Unpack[Options]) -> Decorator:
        """As ``exclusive``, with one of ``limit`` permits."""
        return decorator(partial(self.permit, limit=limit, **options), name)

    def once(self, name: str, key: str, *, attempts: int = 3, **options: Unpack[Options]) -> OnceRequest:
        """A job that runs once for this key, over all hosts, also when a host dies in the middle.

        The key names the firing, and whoever schedules the job makes it, for example from the date: 1 to 100
        bytes without control characters. The lock of that name is held while the job runs. There are so many
        ``attempts`` at most, over all hosts.
        """
        return OnceRequest(partial(self._client.once, name, key, attempts, native(options)))

    def job(self, name: str) -> list[Job]:
        """The last keys of a job, the newest first. ``UnsupportedError``: the backend does not promise
        ``records``.
        """
        return [job(one) for one in wait(self._client.job(name))]

    async def ajob(self, name: str) -> list[Job]:
        """As ``job``, for asyncio."""
        return [job(one) for one in await finished(self._client.job(name))]

    def jobs(self) -> list[Job]:
        """The newest key of each job of this server."""
        return [job(one) for one in wait(self._client.jobs())]

    async def ajobs(self) -> list[Job]:
        """As ``jobs``, for asyncio."""
        return [job(one) for one in await finished(self._client.jobs())]

    def forget_job(self, name: str, key: str) -> bool:
        """Forgets a key, so that its job can run again. It takes the lock for this, and waits for it as
        ``lock`` does. False: it was not known.
        """
        known: bool = wait(self._client.forget_job(name, key))
        return known

    async def aforget_job(self, name: str, key: str) -> bool:
        """As ``forget_job``, for asyncio. If it is cancelled, the key may or may not be forgotten."""
        known: bool = await finished(self._client.forget_job(name, key))
        return known

    def run_as_leader(self, name: str, work: Callable[[Lock], T], **options: Unpack[Options]) -> T:
        """Campaigns, and calls ``work(lock)`` while it leads; returns its value.

        If leadership is lost before the end of the work, there is a new campaign, and ``work`` is called
        again: it calls ``lock.check()`` between its steps. There is no limit of time, unless ``wait`` is
        given, for each campaign. A campaign goes on while the server cannot be reached.
        """
        options.setdefault("wait", None)
        return _leader.run_as_leader(partial(self.campaign, name, **options), work)

    async def arun_as_leader(
        self, name: str, work: Callable[[Lock], Awaitable[T]], **options: Unpack[Options]
    ) -> T:
        """As ``run_as_leader``, for asyncio. The work is cancelled when leadership is lost."""
        options.setdefault("wait", None)
        return await _leader.arun_as_leader(partial(self.campaign, name, **options), work)

    def observe(self, name: str, every: Seconds = 1.0) -> Observation:
        """The leaders of this name, for ``for`` and ``async for``: the present one, then each change."""
        return Observation(self._client.observe(name, seconds(every)))

    def events(self) -> Events:
        """The events of the locks of this client from now on, for ``for`` and ``async for``."""
        return Events(self._client.events())

    def owner(self) -> Owner:
        """A new owner of re-entrant locks: it may take a lock again that it holds."""
        return Owner(self._client.owner())

    def server_order(self) -> Locks:
        """The same client, whose requests are served in the order of their arrival, with those of all
        processes: see ``connect``. Closing one closes both.
        """
        return Locks(self._client.server_order())

    def hand_off(self, most: int, span: Seconds) -> Locks:
        """The same client, whose threads and tasks pass a lock on up to ``most`` times and for up to
        ``span``. Closing one closes both.
        """
        return Locks(self._client.hand_off(most, seconds(span)))

    def inspect(self, name: str) -> Status:
        """The holders of a lock, and those who wait for it."""
        return status(wait(self._client.inspect(name)))

    async def ainspect(self, name: str) -> Status:
        """As ``inspect``, for asyncio."""
        return status(await finished(self._client.inspect(name)))

    def record(self, name: str) -> Record | None:
        """What a holder of this lock has written by ``Lock.write_record``. It may be older than the last
        write. None: there is none. ``UnsupportedError``: the backend does not promise ``records``.
        """
        return record(wait(self._client.record(name)))

    async def arecord(self, name: str) -> Record | None:
        """As ``record``, for asyncio."""
        return record(await finished(self._client.record(name)))

    def held(self) -> list[Status]:
        """All locks that are held, whoever holds them."""
        return [status(one) for one in wait(self._client.held())]

    async def aheld(self) -> list[Status]:
        """As ``held``, for asyncio."""
        return [status(one) for one in await finished(self._client.held())]

    def force_release(self, name: str) -> int:
        """Releases a lock from all its holders, who are known to be dead, and returns their number."""
        number: int = wait(self._client.force_release(name))
        return number

    async def aforce_release(self, name: str) -> int:
        """As ``force_release``, for asyncio."""
        number: int = await finished(self._client.force_release(name))
        return number

    def grace_left(self) -> float | None:
        """For how many seconds the server grants nothing, since it may have forgotten grants. None: it grants
        locks, or this backend has no grace periods.
        """
        left: float | None = wait(self._client.grace_left())
        return left

    async def agrace_left(self) -> float | None:
        """As ``grace_left``, for asyncio."""
        left: float | None = await finished(self._client.grace_left())
        return left

    def begin_grace(self) -> float:
        """Begins a grace period by hand, and returns its length in seconds: nothing is granted until each
        lease has ended that the server may have forgotten. Holders keep their locks.

        For operators who know that the server lacks grants. ``UnsupportedError``: the backend has no grace
        periods; PostgreSQL and Redis have them with ``durability=grace``.
        """
        length: float = wait(self._client.begin_grace())
        return length

    async def abegin_grace(self) -> float:
        """As ``begin_grace``, for asyncio. If it is cancelled, the period may or may not have begun."""
        length: float = await finished(self._client.begin_grace())
        return length

    def end_grace(self) -> None:
        """Says that the servers have forgotten no grant, so that they grant locks from now on.

        For those who know that a server is new, whose first locks wait for a grace period otherwise. If a
        lock is held of which a server does not know, another holder can get it. ``UnsupportedError``: the
        backend has no grace periods, or is PostgreSQL, whose new tables grant locks at once.
        """
        wait(self._client.end_grace())

    async def aend_grace(self) -> None:
        """As ``end_grace``, for asyncio. If it is cancelled, the servers may or may not grant locks."""
        await finished(self._client.end_grace())

    def examine(self) -> list[Finding]:
        """What the settings of the server mean for locks, as ``lockwell doctor`` shows it."""
        return [Finding(*one) for one in wait(self._client.examine())]

    async def aexamine(self) -> list[Finding]:
        """As ``examine``, for asyncio."""
        return [Finding(*one) for one in await finished(self._client.examine())]

    @property
    def leases(self) -> Leases:
        """The shortest and the longest lease of the backend."""
        return Leases(*self._client.leases)

    @property
    def backend(self) -> str:
        """The name of the backend."""
        return self._client.backend

    def promises(self, requirement: str) -> bool:
        """Whether the backend promises this, such as ``"fencing"``. ``connect(require=[...])`` demands it."""
        return self._client.promises(requirement)

    @property
    def stats(self) -> Stats:
        """Counters of the work in the background."""
        return Stats(*self._client.stats())

    def close(self, limit: Seconds = 5.0) -> None:
        """Waits for releases under way, and ends the connections; within ``limit`` seconds.

        Requests that wait end with ``ClosedError``. ``UnknownOutcomeError``: some releases have no answer;
        their locks are free when their leases end.
        """
        wait(self._client.close(seconds(limit)))

    async def aclose(self, limit: Seconds = 5.0) -> None:
        """As ``close``, for asyncio."""
        await finished(self._client.close(seconds(limit)))

    def __enter__(self) -> Locks:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except LockwellError as failure:
            _note(error, failure)

    async def __aenter__(self) -> Locks:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.aclose()
        except LockwellError as failure:
            _note(error, failure)

    def __repr__(self) -> str:
        try:
            servers = self._client.servers
            return f"<lockwell.Locks {self.backend}{f' at {servers}' if servers else ''}>"
        except LockwellError as error:
            return f"<lockwell.Locks: {error}>"
