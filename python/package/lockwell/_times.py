"""Times: seconds, or a ``timedelta``."""

from __future__ import annotations

from datetime import timedelta
from typing import overload

Seconds = float | timedelta


@overload
def seconds(time: Seconds) -> float: ...


@overload
def seconds(time: None) -> None: ...


@overload
def seconds(time: Seconds | None) -> float | None: ...


def seconds(time: Seconds | None) -> float | None:
    return time.total_seconds() if isinstance(time, timedelta) else time
