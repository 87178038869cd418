"""What operators ask: grace periods, findings, leases, and the order of a client's requests."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import lockwell
from servers import also_on_etcd


def test_a_grace_period(redis_url: str, name: str) -> None:
    url = redis_url + ("&" if "?" in redis_url else "?") + "durability=grace&namespace=grace"
    with lockwell.connect(url) as locks:
        with locks.lock(name, wait=60, ttl=2) as lock:
            status = locks.inspect(name)
            assert status.is_held and not status.is_free
        assert locks.inspect(name).is_free
        length = locks.begin_grace()
        left = locks.grace_left()
        assert left is not None and 0 < left <= length
        # Nobody holds it, as far as the server knows.
        status = locks.inspect(name)
        assert not status.is_held and not status.is_free
        assert status.unknown_for is not None and 0 < status.unknown_for <= length
        with pytest.raises(lockwell.GracePeriodError):
            locks.lock(name).try_now()

        async def main() -> None:
            left = await locks.agrace_left()
            assert left is not None and 0 < left <= await locks.abegin_grace()

        asyncio.run(main())
        assert not lock.is_held


def test_a_try_waits_for_the_end_of_a_grace_period(redis_url: str, name: str) -> None:
    # The shortest periods that there are.
    options = "durability=grace&longest_ttl=4s&namespace=through"
    with lockwell.connect(redis_url + ("&" if "?" in redis_url else "?") + options) as locks:
        locks.begin_grace()
        with pytest.raises(lockwell.GracePeriodError):
            locks.lock(name).try_now()
        lock = locks.lock(name).try_now(through_grace=True)
        assert lock is not None and locks.grace_left() is None
        with lock:
            assert locks.lock(name).try_now(through_grace=True) is None

        async def main() -> None:
            with pytest.raises(lockwell.UnsupportedError, match="event loop"):
                locks.lock(name).try_now(through_grace=True)
            await locks.abegin_grace()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await locks.lock(name).atry_now(through_grace=True)
            leader, again = locks.campaign(f"{name}/leader"), locks.owner().lock(f"{name}/again")
            several = locks.lock_all([f"{name}/a", f"{name}/b"])
            tries = [request.atry_now(through_grace=True) for request in (leader, again, several)]
            for held in await asyncio.gather(*tries):
                assert held is not None
                await held.arelease()

        asyncio.run(main())


def test_the_end_of_a_grace_period_by_hand(redis_url: str, name: str) -> None:
    for number, ends_on_a_loop in enumerate([False, True]):
        # A new namespace: the server may have forgotten all of it.
        options = f"durability=grace&namespace={name}/{number}/"
        with lockwell.connect(redis_url + ("&" if "?" in redis_url else "?") + options) as locks:
            with pytest.raises(lockwell.GracePeriodError):
                locks.lock(name).try_now()
            if ends_on_a_loop:
                asyncio.run(locks.aend_grace())
            else:
                locks.end_grace()
            assert locks.grace_left() is None
            lock = locks.lock(name).try_now()
            assert lock is not None
            lock.release()


def test_a_backend_without_grace_periods(memory: lockwell.Locks) -> None:
    assert memory.grace_left() is None
    with pytest.raises(lockwell.UnsupportedError):
        memory.begin_grace()
    with pytest.raises(lockwell.UnsupportedError):
        asyncio.run(memory.abegin_grace())
    with pytest.raises(lockwell.UnsupportedError):
        memory.end_grace()
    assert memory.inspect("free").is_free


@also_on_etcd
def test_the_findings_of_an_examination(locks: lockwell.Locks) -> None:
    findings = locks.examine()
    assert findings and all(isinstance(finding, lockwell.Finding) for finding in findings)
    assert {finding.severity for finding in findings} <= {"good", "doubtful", "bad"}
    assert all(finding.subject and finding.message for finding in findings)
    assert all(finding.remedy for finding in findings if finding.severity == "bad")

    async def main() -> None:
        assert {finding.subject for finding in await locks.aexamine()} == {one.subject for one in findings}

    asyncio.run(main())


@also_on_etcd
def test_the_leases_of_a_backend(locks: lockwell.Locks) -> None:
    leases = locks.leases
    assert 0 < leases.shortest < 10 <= leases.longest
    assert leases.is_session_bound == (locks.backend == "zookeeper")


def test_the_order_of_a_client() -> None:
    with lockwell.connect("memory://order") as locks:
        assert locks.server_order().promises("fifo") and not locks.promises("fifo")
        other = locks.hand_off(10, 0.02)
        with other.lock("a"):
            assert locks.lock("a").try_now() is None
    with pytest.raises(lockwell.ClosedError):
        other.lock("a").acquire()


def test_a_password_of_a_file(redis_url: str, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("hunter2\n")
    # This server accepts any.
    with lockwell.connect(redis_url, password_file=file) as locks, locks.lock("password"):
        pass
    with pytest.raises(lockwell.LockwellError, match="missing"):
        lockwell.connect(redis_url, password_file=tmp_path / "missing")
