"""The options of requests."""

from __future__ import annotations

import math
from typing import Any, TypedDict, cast

from ._times import Seconds, seconds


class Options(TypedDict, total=False):
    """The options of requests: see ``Locks``."""

    ttl: Seconds | None
    wait: Seconds | None
    label: str | None
    traceparent: str | None
    max_hold: Seconds | None
    progress_within: Seconds | None
    lock_delay: Seconds | None


_TIMES = ("ttl", "max_hold", "progress_within", "lock_delay")
_KNOWN = frozenset({*_TIMES, "wait", "label", "traceparent"})


def native(options: Options) -> dict[str, Any]:
    """The options, as the native part wants them."""
    if unknown := options.keys() - _KNOWN:
        raise TypeError(f"there is no option {min(unknown)!r}, but {', '.join(sorted(_KNOWN))}")
    given: dict[str, Any] = {time: seconds(cast(Seconds | None, options.get(time))) for time in _TIMES}
    wait = seconds(options.get("wait"))
    # A wait that is absent is that of the configuration; None is one without a limit.
    given["wait_forever"] = "wait" in options and (wait is None or wait == math.inf)
    given["wait"] = None if given["wait_forever"] else wait
    given["label"] = options.get("label")
    given["traceparent"] = options.get("traceparent")
    return given
