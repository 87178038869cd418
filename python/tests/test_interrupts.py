"""An exception of a signal handler, at each moment at which there can be one: before the first line of a
function, and after the end of a function of C. It is kept, with its traceback and what that refers to.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

import lockwell

PACKAGE = str(Path(lockwell.__file__).parent)


class Interrupt(BaseException):
    pass


def interrupted(number: int, work: Callable[[], object], kinds: tuple[str, ...]) -> Interrupt | None:
    """The exception that is raised at this moment of the work; None if it has fewer."""
    moments = 0

    def profile(frame: FrameType, event: str, _: object) -> None:
        nonlocal moments
        # What a destructor raises is not raised by the work.
        is_of_it = frame.f_code.co_filename.startswith(PACKAGE) and frame.f_code.co_name != "__del__"
        if event in kinds and is_of_it:
            moments += 1
            if moments == number:
                sys.setprofile(None)
                raise Interrupt

    try:
        sys.setprofile(profile)
        work()
    except Interrupt as error:
        return error
    finally:
        sys.setprofile(None)
    return None


def acquire(locks: lockwell.Locks) -> None:
    locks.lock("a").acquire().release()


def try_now(locks: lockwell.Locks) -> None:
    lock = locks.lock("a").try_now()
    assert lock is not None
    lock.release()


def block(locks: lockwell.Locks) -> None:
    with locks.lock("a"):
        pass


def block_of_a_lock(locks: lockwell.Locks) -> None:
    with locks.lock("a").acquire():
        pass


def several(locks: lockwell.Locks) -> None:
    with locks.lock_all(["a", "b"]) as held:
        held["a"].release()


def release_of_several(locks: lockwell.Locks) -> None:
    locks.lock_all(["a", "b"]).acquire().release()


def downgrade(locks: lockwell.Locks) -> None:
    with locks.write("a") as lock:
        lock.downgrade()


def owner(locks: lockwell.Locks) -> None:
    owner = locks.owner()
    with owner.lock("a"), owner.lock("a"):
        pass


@pytest.mark.parametrize(
    "work",
    [acquire, try_now, block, block_of_a_lock, several, release_of_several, downgrade, owner],
)
def test_an_interrupt_leaves_nothing_held(
    memory: lockwell.Locks, work: Callable[[lockwell.Locks], None]
) -> None:
    kept = []
    # A lock that is released by its destructor is released: it is a warning of the program.
    warnings.simplefilter("ignore", ResourceWarning)
    while error := interrupted(len(kept) + 1, lambda: work(memory), ("call", "c_return")):
        kept.append(error)
        where = error.__traceback__
        while where is not None and where.tb_next is not None and where.tb_next.tb_next is not None:
            where = where.tb_next
        try:
            memory.lock_all(["a", "b"], wait=10).acquire().release()
        except lockwell.TimedOutError:
            pytest.fail(f"moment {len(kept)}: still held: {where and where.tb_frame}")
    assert len(kept) > 5


def test_an_interrupt_does_not_break_events(memory: lockwell.Locks) -> None:
    moments = 0
    while True:
        events = memory.events()
        for _ in range(2):
            memory.lock("a").acquire().release()
        error = interrupted(moments + 1, lambda events=events: next(events), ("call",))  # type: ignore[misc]
        if error is None:
            break
        moments += 1
        assert [next(events).kind for _ in range(4)] == ["granted", "released"] * 2
    assert moments > 3


def test_an_interrupt_after_the_result_was_taken_does_not_break_events(
    memory: lockwell.Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lockwell import _stream

    real = _stream.wait

    def wait(op: object, *, keeps: bool) -> object:
        real(op, keeps=keeps)  # type: ignore[arg-type]
        raise Interrupt

    events = memory.events()
    memory.lock("a").acquire().release()
    with monkeypatch.context() as patch:
        patch.setattr(_stream, "wait", wait)
        with pytest.raises(Interrupt):
            next(events)
    assert [next(events).kind for _ in range(2)] == ["granted", "released"]


def test_a_lock_that_is_dropped_where_warnings_are_errors_is_released(
    memory: lockwell.Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda raised: kept.extend([raised.exc_value, raised.object]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        memory.lock("a").acquire()
        memory.lock("a", wait=30).acquire().release()
    assert isinstance(kept[0], ResourceWarning) and "not released" in str(kept[0])
