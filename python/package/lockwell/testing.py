"""For tests of applications: a lock server in memory, whose faults and clock the test controls."""

from __future__ import annotations

from . import _native
from ._locks import Locks
from ._times import Seconds, seconds
from ._wait import wait


class TestServer:
    """A lock server in memory. On demand it fails, is slow, or takes locks away.

    Leases, waits and renewals follow a clock that stands still until the test moves it. So a test needs no
    sleeps.
    """

    __test__ = False

    def __init__(self) -> None:
        self._server = _native.TestServer()

    def locks(self) -> Locks:
        """A new client, like that of another process."""
        return Locks(self._server.client())

    def advance(self, span: Seconds) -> None:
        """Moves the clock forward. A step over a whole lease ends it, as if the process had been stopped."""
        self._server.advance(seconds(span))

    def fail(self, operation: str, kind: str, times: int | None = None) -> None:
        """From now on, or for so many calls, this operation fails with an error of this kind.

        Operations are ``acquire``, ``renew``, ``downgrade``, ``release``, ``inspect``, ``force_release``,
        ``write_record``, ``read_record``; kinds are those of the exceptions, such as ``unreachable``.
        """
        self._server.fail(operation, kind, times)

    def fail_all(self, kind: str) -> None:
        """From now on every operation fails with an error of this kind, as if the server were down."""
        self._server.fail_all(kind)

    def delay(self, operation: str, span: Seconds | None) -> None:
        """From now on this operation takes so long, by the clock of the test. None: it has no end."""
        self._server.delay(operation, seconds(span))

    def heal(self) -> None:
        """Removes all faults."""
        self._server.heal()

    def lose(self, name: str) -> int:
        """Takes a lock from its holders, as an operator does by force, and returns their number."""
        number: int = wait(self._server.lose(name))
        return number

    def crash(self, name: str) -> int:
        """The processes that hold this lock end without a word, as by ``kill -9``: it is free when its lease
        has ended. Returns their number. Their ``Lock`` is still there, as if the test could look into them.
        """
        return self._server.crash(name)
