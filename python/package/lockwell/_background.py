"""A thread of Python for callbacks, which native threads must not call: they would wait for the interpreter
lock.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import count

from ._native import Mailbox, Op
from ._wait import readable

_log = logging.getLogger("lockwell")


class Background:
    """A daemon thread that calls back when operations end. It is started by the first of them, once in each
    process.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._reset()
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        # A signal handler may come here again on the thread that has it.
        self._lock = threading.RLock()
        self._numbers = count()
        self._calls: dict[int, Callable[[], object]] = {}
        self._mailbox: Mailbox | None = None

    def expect(self, op: Op, call: Callable[[], object]) -> int:
        """Calls this, on the thread, when the operation ends."""
        with self._lock:
            mailbox = self._mailbox
            if mailbox is None:
                mailbox = Mailbox()
                arguments = (mailbox, self._calls)
                threading.Thread(target=self._run, args=arguments, name=self._name, daemon=True).start()
                # Last: without a thread the next call tries again.
                self._mailbox = mailbox
            number = next(self._numbers)
            self._calls[number] = call
            op.notify(mailbox, number)
            return number

    @staticmethod
    def _run(mailbox: Mailbox, calls: dict[int, Callable[[], object]]) -> None:
        while True:
            readable(mailbox)
            for number in mailbox.take():
                call = calls.pop(number, None)
                if call is not None:
                    _guarded(call)


def _guarded(call: Callable[[], object]) -> None:
    """Calls this. Whatever it raises, also `SystemExit`, the thread goes on: all callbacks share it."""
    try:
        call()
    except BaseException:
        # The logger may be one that raises as well.
        with suppress(BaseException):
            _log.exception("a callback has failed")
