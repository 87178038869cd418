"""The begin and the end of processes."""

from __future__ import annotations

import atexit
import os
import sys

from ._native import note_fork, released
from ._wait import wait

# Before all that this package does in a child.
os.register_at_fork(after_in_child=note_fork)

# After the finalizers of others, which may drop locks.
_LAST = -1000
_expected = False
_gave_up = False


@atexit.register
def _wait_for_releases() -> None:
    """Gives the releases of dropped locks, and the withdrawals of interrupted waits, a second to reach the
    server.
    """
    global _gave_up
    try:
        if not _gave_up:
            wait(released(), 1.0)
    except TimeoutError:
        # Those locks are free when their leases end.
        _gave_up = True


def expect_end() -> None:
    """Waits for releases at the end of a child of ``multiprocessing`` or ``billiard`` too. It ends by
    ``os._exit``, without the functions of ``atexit``. Each connect calls this: the child drops what was
    registered before it began.
    """
    global _expected
    util = sys.modules.get("multiprocessing.util")
    if not _expected and util is not None:
        _expected = True
        util.Finalize(None, _wait_for_releases, exitpriority=_LAST)


def _after_fork() -> None:
    global _expected, _gave_up
    _expected = _gave_up = False


os.register_at_fork(after_in_child=_after_fork)
