"""What comes one after the other, for ``for`` and ``async for``."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from ._aio import finished
from ._errors import LockwellError
from ._native import Op
from ._wait import wait


class Stream:
    """The operations that yield the items.

    A call that ends early, by a cancellation or a signal, leaves its operation to the next one, so it misses
    nothing.
    """

    def __init__(self, begin: Callable[[], Op]) -> None:
        self._begin = begin
        self._left: deque[Op] = deque()

    def _take(self) -> Op:
        try:
            return self._left.popleft()
        except IndexError:
            return self._begin()

    def _next(self) -> Any:
        op = self._take()
        try:
            return wait(op, keeps=True)
        except LockwellError:
            raise
        except BaseException:
            self._left.append(op)
            raise

    async def _anext(self) -> Any:
        op = self._take()
        try:
            return await finished(op, keeps=True)
        except LockwellError:
            raise
        except BaseException:
            self._left.append(op)
            raise
