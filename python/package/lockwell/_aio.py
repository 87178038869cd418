"""Waiting for operations on event loops of asyncio. No thread waits: the loop watches a file descriptor."""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Callable
from itertools import count
from typing import Any

from ._native import Mailbox, Op


class _Postbox:
    """The mailbox of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._mailbox = Mailbox()
        self._numbers = count()
        self._calls: dict[int, Callable[[], object]] = {}
        loop.add_reader(self._mailbox.fileno(), self._deliver)

    def expect(self, op: Op, call: Callable[[], object]) -> int:
        """Calls this, on the loop, when the operation ends."""
        number = next(self._numbers)
        self._calls[number] = call
        op.notify(self._mailbox, number)
        return number

    def forget(self, number: int) -> None:
        self._calls.pop(number, None)

    def _deliver(self) -> None:
        for number in self._mailbox.take():
            call = self._calls.pop(number, None)
            if call is not None:
                call()


# A loop keeps its postbox, as its reader, until it is closed. A reference to the postbox here would keep the
# loop, whose futures the postbox has: a loop that was closed with pending tasks would stay, with their locks.
_postboxes: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, weakref.ref[_Postbox]]
_postboxes = weakref.WeakKeyDictionary()


def postbox() -> _Postbox:
    """The postbox of the running loop."""
    loop = asyncio.get_running_loop()
    known = _postboxes.get(loop)
    box = None if known is None else known()
    if box is None:
        box = _Postbox(loop)
        _postboxes[loop] = weakref.ref(box)
    return box


def loop_is_running() -> bool:
    """Whether a blocking call would stop an event loop."""
    return asyncio._get_running_loop() is not None


async def finished(op: Op, *, keeps: bool = False) -> Any:
    """The result of an operation, which is cancelled with the coroutine: a claim is withdrawn. ``keeps``: it
    is not.
    """
    if op.done():
        return op.result()
    box = postbox()
    ends = asyncio.get_running_loop().create_future()

    def end() -> None:
        if not ends.done():
            ends.set_result(None)

    number = box.expect(op, end)
    try:
        await ends
    except BaseException:
        box.forget(number)
        if not keeps:
            op.cancel()
        raise
    return op.result()


# Loops of the parent do not run in a child, and their mailboxes lead to the parent.
os.register_at_fork(after_in_child=_postboxes.clear)
