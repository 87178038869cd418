"""The end of processes."""

from __future__ import annotations

import atexit

from ._native import released
from ._wait import wait


@atexit.register
def _wait_for_releases() -> None:
    """Gives the releases of dropped locks, and the withdrawals of interrupted waits, a second to reach the
    server.
    """
    try:
        wait(released(), 1.0)
    except TimeoutError:
        # Those locks are free when their leases end.
        pass
