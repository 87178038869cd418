"""The API for threads, on all backends."""

from __future__ import annotations

import datetime
import threading
import time

import pytest

import lockwell
from servers import also_on_etcd


@also_on_etcd
def test_a_block_holds_the_lock(locks: lockwell.Locks, name: str) -> None:
    with locks.lock(name, ttl=10, wait=5) as lock:
        assert (lock.name, lock.mode, lock.state, lock.is_held) == (name, "exclusive", "held", True)
        assert 0 < lock.time_left <= 10
        lock.check()
        assert locks.read(name).try_now() is None
        with pytest.raises(lockwell.TimedOutError) as raised:
            locks.lock(name, wait=0.05).acquire()
        assert (raised.value.operation, raised.value.lock, raised.value.retryable) == ("acquire", name, True)
        first = lock.token
    assert (lock.is_held, lock.state) == (False, "released")
    with locks.lock(name) as lock:
        assert lock.token > first


@also_on_etcd
def test_an_exception_of_the_block_releases_the_lock(locks: lockwell.Locks, name: str) -> None:
    with pytest.raises(ZeroDivisionError):
        with locks.lock(name):
            1 / 0
    held = locks.lock(name).try_now()
    assert held is not None
    held.release()
    with pytest.raises(lockwell.NotHeldError):
        held.release()


@also_on_etcd
def test_a_waiter_gets_the_lock_from_another_thread(locks: lockwell.Locks, name: str) -> None:
    counter = {"in": 0, "sum": 0}

    def work() -> None:
        for _ in range(5):
            with locks.lock(name, wait=60):
                counter["in"] += 1
                assert counter["in"] == 1
                seen = counter["sum"]
                time.sleep(0.001)
                counter["sum"] = seen + 1
                counter["in"] -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert counter == {"in": 0, "sum": 20}


@also_on_etcd
def test_readers_permits_and_a_downgrade(locks: lockwell.Locks, name: str) -> None:
    with locks.read(name) as first, locks.read(name) as second:
        assert first.mode == second.mode == "shared"
        assert locks.write(name).try_now() is None
    with locks.write(name) as lock:
        token = lock.token
        lock.downgrade()
        assert (lock.mode, lock.token) == ("shared", token)
        with locks.read(name):
            pass
    with locks.permit(name + "/permits", 2) as permit, locks.permit(name + "/permits", 2):
        assert permit.mode == "permit"
        assert locks.permit(name + "/permits", 2).try_now() is None
        with pytest.raises(lockwell.KindClashError) as clash:
            locks.permit(name + "/permits", 3).try_now()
        assert clash.value.retryable
        with pytest.raises(lockwell.InvalidInputError):
            permit.downgrade()
        assert permit.is_held


@also_on_etcd
def test_several_locks_at_once(locks: lockwell.Locks, name: str) -> None:
    both = [f"{name}/b", f"{name}/a"]
    with locks.lock_all(both, reading=[f"{name}/c"], wait=5) as held:
        assert [lock.name for lock in held] == [f"{name}/a", f"{name}/b", f"{name}/c"]
        assert held[f"{name}/c"].mode == "shared" and held.is_held and len(held) == 3
        held.check()
        assert locks.lock(both[0]).try_now() is None
        assert locks.lock_all(both).try_now() is None
        with pytest.raises(lockwell.TimedOutError):
            locks.lock_all(both, wait=0.05).acquire()
    for one in both:
        lock = locks.lock(one).try_now()
        assert lock is not None
        lock.release()


def test_what_the_server_knows(locks: lockwell.Locks, name: str) -> None:
    assert not locks.inspect(name).is_held
    with locks.lock(name, label="the test", ttl=datetime.timedelta(seconds=2)) as lock:
        status = locks.inspect(name)
        (holder,) = status.holders
        assert (status.name, status.waiters, holder.label, holder.token) == (name, 0, "the test", lock.token)
        assert holder.mode == "exclusive" and holder.permits is None and 0 < holder.ttl_left <= 2
        assert name in [status.name for status in locks.held()]
        assert locks.stats.held == 1
        assert locks.force_release(name) == 1
        assert lock.wait_lost(30) == "taken"
        assert lock.loss == "taken" and not lock.is_held
        with pytest.raises(lockwell.LostError):
            lock.check()
        with pytest.raises(lockwell.LostError):
            lock.release()
    assert locks.stats.lost == 1


def test_who_waits_is_shown(locks: lockwell.Locks, name: str) -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    with pytest.raises(lockwell.InvalidInputError):
        locks.lock(name, traceparent="x").acquire()
    with locks.lock(name, traceparent=trace):
        request = locks.read(name, label="next", traceparent=trace)
        waits = threading.Thread(target=lambda: request.acquire().release())
        waits.start()
        deadline = time.monotonic() + 10
        while not (status := locks.inspect(name)).waiting and time.monotonic() < deadline:
            time.sleep(0.01)
        (holder,), (first,) = status.holders, status.waiting
        assert holder.traceparent == trace and holder.label and trace not in holder.label
        assert (first.label, first.mode, first.traceparent, status.waiters) == ("next", "shared", trace, 1)
    waits.join()


def test_a_loss_is_an_exception_at_the_end_of_the_block(locks: lockwell.Locks, name: str) -> None:
    reasons: list[str] = []
    called = threading.Event()
    with pytest.raises(lockwell.LostError) as raised:
        with locks.lock(name, ttl=1) as lock:
            lock.on_lost(lambda reason: (reasons.append(reason), called.set()))
            locks.force_release(name)
            lock.wait_lost(30)
    assert raised.value.lock == name
    assert called.wait(30) and reasons == ["taken"]
    with pytest.raises(ZeroDivisionError) as other:
        with locks.lock(name, ttl=1) as lock:
            locks.force_release(name)
            lock.wait_lost(30)
            1 / 0
    assert "lost" in other.value.__notes__[0]


@also_on_etcd
def test_run_and_decorators(locks: lockwell.Locks, name: str) -> None:
    @locks.exclusive(name, wait=5)
    def nightly(number: int) -> int:
        """Its text."""
        assert locks.inspect(name).is_held
        return number + 1

    @locks.exclusive(lambda order: f"{name}/{order}")
    def deliver(order: int) -> bool:
        return locks.inspect(f"{name}/{order}").is_held

    assert nightly(41) == 42 and nightly.__doc__ == "Its text."
    assert deliver(7) and not locks.inspect(f"{name}/7").is_held
    assert locks.lock(name).run(divmod, 7, 2) == (3, 1)
    assert not locks.inspect(name).is_held


@also_on_etcd
def test_a_lock_that_is_dropped_is_released(locks: lockwell.Locks, name: str) -> None:
    lock = locks.lock(name).acquire()
    with pytest.warns(ResourceWarning, match="a lock was not released"):
        del lock
    with locks.lock(name, wait=30):
        pass


@also_on_etcd
def test_a_leader(locks: lockwell.Locks, name: str) -> None:
    terms: list[int] = []

    def lead(lock: lockwell.Lock) -> str:
        terms.append(lock.token)
        observed = next(locks.observe(name, every=0.01))
        assert observed == lockwell.Leader(lock.token, "me")
        if len(terms) == 1:
            locks.force_release(name)
            lock.wait_lost(30)
        return "done"

    assert locks.run_as_leader(name, lead, label="me", ttl=2) == "done"
    assert len(terms) == 2 and terms[1] > terms[0]
    with locks.campaign(name):
        with pytest.raises(lockwell.TimedOutError):
            locks.run_as_leader(name, lead, wait=0.05)
    assert len(terms) == 2
