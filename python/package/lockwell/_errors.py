"""The exceptions: one class for each kind of error of the library."""

from __future__ import annotations


class LockwellError(Exception):
    """What went wrong. The text says where, what, and what to do about it; it never has a password."""

    kind: str = "unknown"
    """The kind, such as ``"timed_out"``; each has a class of its own."""
    remedy: str | None = None
    """What can be done about errors of this kind, where their messages do not say it."""

    def __init__(
        self,
        text: str,
        *,
        operation: str | None = None,
        lock: str | None = None,
        backend: str | None = None,
        servers: str | None = None,
        retryable: bool = False,
    ) -> None:
        super().__init__(text if self.remedy is None else f"{text}; {self.remedy}")
        self.operation = operation
        """The operation that failed, such as ``"acquire"``."""
        self.lock = lock
        """The name of the lock."""
        self.backend = backend
        """The backend, such as ``"postgres"``."""
        self.servers = servers
        """The servers that were asked, as ``HOST:PORT``."""
        self.retryable = retryable
        """Whether the same call may succeed later without human intervention."""

    def __reduce__(self) -> tuple[object, ...]:
        # Task queues send exceptions from process to process.
        state = {**self.__dict__}
        return (_remade, (type(self), str(self), state))


def _remade(cls: type[LockwellError], text: str, state: dict[str, object]) -> LockwellError:
    error = cls.__new__(cls, text)
    error.args = (text,)
    error.__dict__.update(state)
    return error


class TimedOutError(LockwellError, TimeoutError):
    """The wait ended before the lock was free. Nothing is held."""

    kind = "timed_out"


class HeldError(LockwellError):
    """The lock is held by another claim, and the operation does not wait."""

    kind = "held"


class LostError(LockwellError):
    """The lock was held and has been lost: the server reported it, or the lease ran out."""

    kind = "lost"


class NotHeldError(LockwellError):
    """The operation needs a lock that is not held, for example since it was released already."""

    kind = "not_held"


class KindClashError(LockwellError):
    """The name is in use as another kind of lock: not as a semaphore, or with another limit.

    A claim that waits gets it when that kind has left.
    """

    kind = "kind_clash"


class WouldDeadlockError(LockwellError):
    """The claim would wait for its own owner, and so for ever."""

    kind = "would_deadlock"


class InvalidInputError(LockwellError, ValueError):
    """A name, time, address or option is invalid. Nothing was sent."""

    kind = "invalid_input"


class UnsupportedError(LockwellError):
    """The backend cannot do this, or it cannot be done here. Nothing was sent."""

    kind = "unsupported"


class UnreachableError(LockwellError, ConnectionError):
    """The server cannot be reached, or did not answer in time."""

    kind = "unreachable"


class RefusedError(LockwellError):
    """The server refused the authentication or a permission."""

    kind = "refused"
    remedy = "check user, password and rights (the command `lockwell doctor` checks them)"


class MisconfiguredError(LockwellError):
    """The server answers, but locks do not work because of its state or settings."""

    kind = "misconfigured"


class UnknownOutcomeError(LockwellError):
    """The request may or may not have taken effect. It is being cleaned up in the background."""

    kind = "unknown_outcome"
    remedy = "what it may have locked ends with its ttl"


class ClaimCancelledError(LockwellError):
    """The claim was cancelled before its request was sent."""

    kind = "cancelled"


class OverloadedError(LockwellError):
    """Too many requests are waiting. Nothing was sent."""

    kind = "overloaded"
    remedy = "try again"


class ConflictError(LockwellError):
    """The server refused because of concurrent requests. Nothing was done."""

    kind = "conflict"
    remedy = "try again"


class GracePeriodError(LockwellError):
    """The server may have forgotten grants, and grants nothing until their leases have ended."""

    kind = "grace_period"


class ClosedError(LockwellError):
    """The client was closed."""

    kind = "closed"


class InternalError(LockwellError):
    """A defect in lockwell or in a backend."""

    kind = "internal"
    remedy = (
        "see the log of the server; if it says nothing, please report this with the log of the level DEBUG"
    )


class ForkedError(LockwellError):
    """An object of the parent process was used in a forked child."""

    kind = "forked"


_BY_KIND: dict[str, type[LockwellError]] = {cls.kind: cls for cls in LockwellError.__subclasses__()}


def made(
    kind: str,
    text: str,
    operation: str | None,
    lock: str | None,
    backend: str | None,
    servers: str | None,
    retryable: bool,
) -> LockwellError:
    """The exception for an error of the native part, which calls this."""
    cls = _BY_KIND.get(kind, LockwellError)
    facts = {"operation": operation, "lock": lock, "backend": backend, "servers": servers}
    return cls(text, retryable=retryable, **facts)


def forked() -> ForkedError:
    """The exception for an object of the parent process; the native part calls this."""
    return ForkedError(
        "this object was made before the fork: the parent has its locks and connections, and uses them; "
        "connect in the child, after the fork"
    )
