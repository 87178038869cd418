"""Waiting for operations on threads, and on greenlets of gevent."""

from __future__ import annotations

import os
import select
from collections import deque
from typing import Any

from ._native import Mailbox, Op

# Mailboxes that no operation uses. A call that waits takes one, so a signal handler that waits meanwhile has
# another.
_free: deque[Mailbox] = deque()
_MOST_FREE = 64


def wait(op: Op, timeout: float | None = None, *, keeps: bool = False) -> Any:
    """The result of an operation. A signal handler that raises, such as that of Ctrl-C, cancels the
    operation.

    The wait is a ``poll`` of Python: it runs signal handlers at once, other threads run meanwhile, and so do
    other greenlets where gevent or eventlet has patched ``select``. The end of ``timeout``, in seconds,
    cancels the operation as well, and raises ``TimeoutError``. ``keeps``: neither cancels it.
    """
    try:
        if op.done():
            return op.result()
        mailbox = _taken()
        op.notify(mailbox, 0)
        while not op.done():
            if not readable(mailbox, timeout) and timeout is not None:
                raise TimeoutError(f"not within {timeout} seconds")
        mailbox.take()
        if len(_free) < _MOST_FREE:
            _free.append(mailbox)
        return op.result()
    except BaseException:
        # A handler may also raise between the last poll and the result, which nobody gets then.
        if not keeps:
            op.cancel()
        raise


def readable(mailbox: Mailbox, timeout: float | None = None) -> bool:
    """Waits until the mailbox has numbers. False: not within ``timeout`` seconds, or a signal has come."""
    if not hasattr(select, "poll"):
        # Where eventlet has patched it, it has no `poll`.
        return bool(select.select([mailbox], [], [], timeout and max(0.0, timeout))[0])
    poll = select.poll()
    poll.register(mailbox, select.POLLIN)
    return bool(poll.poll(None if timeout is None else max(0.0, timeout) * 1000))


def _taken() -> Mailbox:
    try:
        return _free.pop()
    except IndexError:
        return Mailbox()


# The file descriptors of the parent's mailboxes lead to the parent.
os.register_at_fork(after_in_child=_free.clear)
