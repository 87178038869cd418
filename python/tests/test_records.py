"""Records: what the present holder of a lock writes for the next one."""

from __future__ import annotations

import asyncio

import pytest

import lockwell
from lockwell.testing import TestServer


def test_the_next_holder_reads_it(locks: lockwell.Locks, name: str) -> None:
    with locks.lock(name, wait=60) as lock:
        assert lock.read_record() is None and locks.record(name) is None
        lock.write_record(b"\xff\x00line 42")
        written = lock.read_record()
    assert written == lockwell.Record(b"\xff\x00line 42", lock.token, lock.hold_id)
    with pytest.raises(lockwell.LostError):
        lock.write_record(b"late")

    async def main() -> None:
        async with locks.lock(name, wait=60) as lock:
            assert await lock.aread_record() == written
            await lock.awrite_record(b"line 43")
        record = await locks.arecord(name)
        assert record is not None and record.value == b"line 43"
        async with locks.lock(name, wait=60) as lock:
            await lock.awrite_record(b"")
            assert await lock.aread_record() is None

    asyncio.run(main())


def test_what_is_refused() -> None:
    server = TestServer()
    locks = server.locks()
    with locks.read("a") as reader, pytest.raises(lockwell.InvalidInputError):
        reader.write_record(b"x")
    with locks.lock("a") as lock:
        with pytest.raises(TypeError):
            lock.write_record("text")  # type: ignore[arg-type]
        with pytest.raises(lockwell.InvalidInputError):
            lock.write_record(bytes(16 * 1024 + 1))
        server.fail("write_record", "unreachable", 1)
        with pytest.raises(lockwell.UnreachableError) as failed:
            lock.write_record(b"x")
        assert failed.value.operation == "write_record"
        lock.write_record(b"x")
    owner = locks.owner()
    outer, inner = owner.lock("a").acquire(), owner.lock("a").acquire()
    inner.release()
    with pytest.raises(lockwell.NotHeldError):
        inner.write_record(b"y")
    record = outer.read_record()
    assert record is not None and record.value == b"x"
    outer.release()
