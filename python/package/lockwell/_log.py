"""The log events of the native part, for ``logging``.

The native part puts them into a queue, and a thread of Python takes them from there: no native thread waits
for a handler of Python. They belong to loggers below ``lockwell``. What the logger ``lockwell`` does not let
through is not recorded.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from contextlib import suppress

from ._native import Mailbox, set_log_level, take_log
from ._wait import readable

logger = logging.getLogger("lockwell")
logger.addHandler(logging.NullHandler())

# The level that the native part knows; None before the thread was started.
_level: int | None = None
# A signal handler may come here again on the thread that has it.
_starting = threading.RLock()


def refresh() -> None:
    """Tells the native part which level the logger has now. Every request calls this."""
    # Levels above 50 are all the same: nothing is recorded.
    level = min(51, max(0, logger.getEffectiveLevel(), logger.manager.disable + 1))
    if level != _level:
        _set(level)


def _set(level: int) -> None:
    global _level, _mailbox
    with _starting:
        mailbox = _mailbox
        if mailbox is None:
            mailbox = Mailbox()
            threading.Thread(target=_run, args=(mailbox,), name="lockwell-log", daemon=True).start()
            # Last: without a thread the next call tries again.
            _mailbox = mailbox
        set_log_level(level, mailbox)
        _level = level


_mailbox: Mailbox | None = None


def _run(mailbox: Mailbox) -> None:
    while True:
        readable(mailbox)
        mailbox.take()
        events, dropped = take_log()
        for event in events:
            _handle(*event)
        if dropped:
            text = f"{dropped} events were dropped: the handlers of this logger are too slow"
            _handle(time.time(), logging.WARNING, "lockwell::log", text, "")


def _handle(created: float, level: int, target: str, message: str, fields: str) -> None:
    name = "lockwell." + target.removeprefix("lockwell::").replace("::", ".")
    try:
        target_logger = logging.getLogger(name)
        if not target_logger.isEnabledFor(level):
            return
        record = target_logger.makeRecord(name, level, "(lockwell)", 0, message + fields, (), None)
        record.created, record.msecs = created, float(int(created % 1 * 1000))
        target_logger.handle(record)
    except BaseException:
        # A handler of the application has failed; the next event may be more to its taste.
        with suppress(BaseException):
            plain = logging.LogRecord(name, level, "(lockwell)", 0, message + fields, (), None)
            logging.lastResort.handle(plain) if logging.lastResort else None


def _after_fork() -> None:
    # The thread stays in the parent.
    global _level, _mailbox, _starting
    _level, _mailbox, _starting = None, None, threading.RLock()


os.register_at_fork(after_in_child=_after_fork)
