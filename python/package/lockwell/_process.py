"""The beginning and the end of processes."""

from __future__ import annotations

import atexit
import os
from functools import partial

from ._native import after_fork, before_fork, released
from ._wait import wait

# The native part checks by itself in which process it is. This keeps its queues usable in the child.
os.register_at_fork(
    before=before_fork, after_in_parent=partial(after_fork, False), after_in_child=partial(after_fork, True)
)


@atexit.register
def _wait_for_releases() -> None:
    """Gives the releases of locks that were dropped a second to reach the server."""
    try:
        wait(released(), 1.0)
    except TimeoutError:
        # Those locks are free when their leases end.
        pass
