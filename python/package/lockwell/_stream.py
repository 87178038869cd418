"""What comes one after the other, for ``for`` and ``async for``."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from ._aio import finished
from ._errors import LockwellError
from ._native import Op
from ._wait import wait

T = TypeVar("T")


class Stream:
    """The operations that yield the items.

    A call that ends early, by a cancellation or a signal, leaves its operation to the next one, so it misses
    nothing: the result of such an operation can be taken again.
    """

    def __init__(self, begin: Callable[[], Op]) -> None:
        self._begin = begin
        self._left: deque[Op] = deque()

    def _take(self) -> Op:
        try:
            return self._left.popleft()
        except IndexError:
            return self._begin()

    def _next(self, made: Callable[[Any], T]) -> T:
        op = self._take()
        try:
            return made(wait(op, keeps=True))
        except LockwellError:
            raise
        except BaseException:
            self._left.append(op)
            raise

    async def _anext(self, made: Callable[[Any], T]) -> T:
        op = self._take()
        try:
            return made(await finished(op, keeps=True))
        except LockwellError:
            raise
        except BaseException:
            self._left.append(op)
            raise
