"""A thread of Python for callbacks, which native threads must not call: they would wait for the interpreter
lock.
"""

from __future__ import annotations

import logging
import os
import select
import threading
from collections.abc import Callable
from itertools import count

from ._native import Mailbox, Op

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
        self._lock = threading.Lock()
        self._numbers = count()
        self._calls: dict[int, Callable[[], object]] = {}
        self._mailbox: Mailbox | None = None

    def expect(self, op: Op, call: Callable[[], object]) -> int:
        """Calls this, on the thread, when the operation ends."""
        with self._lock:
            if self._mailbox is None:
                self._mailbox = Mailbox()
                arguments = (self._mailbox, self._calls)
                threading.Thread(target=self._run, args=arguments, name=self._name, daemon=True).start()
            number = next(self._numbers)
            self._calls[number] = call
            op.notify(self._mailbox, number)
            return number

    @staticmethod
    def _run(mailbox: Mailbox, calls: dict[int, Callable[[], object]]) -> None:
        poll = select.poll()
        poll.register(mailbox, select.POLLIN)
        while True:
            poll.poll()
            for number in mailbox.take():
                call = calls.pop(number, None)
                try:
                    if call is not None:
                        call()
                except Exception:
                    _log.exception("a callback has failed")
