"""Connecting, configuration, errors, and the server for tests."""

from __future__ import annotations

import copy
import datetime
import pickle
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

import lockwell
from lockwell import _errors, _native
from lockwell.testing import TestServer


def test_every_kind_of_error_has_a_class() -> None:
    kinds = set(_native.kinds())
    assert kinds == set(_errors._BY_KIND) - {"forked"}
    for kind in kinds:
        error = _errors.made(kind, "what was wrong", "acquire", "a", "redis", "h:1", True)
        assert type(error) is not lockwell.LockwellError and type(error).__name__ in lockwell.__all__
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error) and str(again) == str(error) and vars(again) == vars(error)
        assert str(copy.copy(error)) == str(error)
    assert "lockwell doctor" in str(_errors.made("refused", "no", None, None, None, None, False))
    assert (
        type(_errors.made("of a later version", "", None, None, None, None, False)) is lockwell.LockwellError
    )


def test_builtin_exceptions_catch_what_they_mean(memory: lockwell.Locks) -> None:
    with memory.lock("catch"):
        with pytest.raises(TimeoutError):
            memory.lock("catch", wait=0).acquire()
    with pytest.raises(ConnectionError):
        lockwell.connect("redis://127.0.0.1:1?timeout=50ms")
    with pytest.raises(ValueError, match="ttl is a number of seconds, at least 0, not -1"):
        memory.lock("catch", ttl=-1).acquire()
    with pytest.raises(TypeError):
        memory.lock("catch", til=1)
    for limit in (-1, 0, 2**32, 2**99):
        with pytest.raises(lockwell.InvalidInputError):
            memory.permit("catch", limit).acquire()
    with pytest.raises(TypeError):
        memory.permit("catch", "4").acquire()  # type: ignore[arg-type]
    with memory.lock("catch") as lock, pytest.raises(TimeoutError):
        lock.wait_lost(datetime.timedelta(seconds=0.01))


def test_no_text_has_the_password() -> None:
    secret = "hunter2"
    texts: list[str] = []
    for address in (
        "redis://ann:hunter2@127.0.0.1:1?timeout=50ms",
        "mysql://ann:hunter2@127.0.0.1:1/a?timeout=50ms",
        "zk://:hunter2@",
    ):
        with pytest.raises(lockwell.LockwellError) as raised:
            lockwell.connect(address)
        texts += [repr(raised.value), str(vars(raised.value)), *traceback.format_exception(raised.value)[1:]]
    lazy = lockwell.connect("redis://ann:hunter2@127.0.0.1:1?timeout=50ms", lazy=True)
    assert repr(lazy) == "<lockwell.Locks redis at 127.0.0.1:1>"
    with pytest.raises(lockwell.UnreachableError) as unreachable:
        lazy.lock("a", wait=0).acquire()
    assert unreachable.value.servers == "127.0.0.1:1"
    with pytest.raises(lockwell.InvalidInputError) as bad:
        lockwell.connect(toml='url = "mysql://ann:hunter2@db"\ntll = "1s"')
    texts += [repr(lazy), str(unreachable.value), str(bad.value)]
    lines = [
        line
        for text in texts
        for line in text.splitlines()
        if secret in line and "lockwell.connect(" not in line
    ]
    assert not lines


def test_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "locks.toml"
    file.write_text(
        'url = "memory://configured"\nttl = "3s"\nwait = "10ms"\nlabel = "file"\nrequire = ["fencing"]\n'
    )
    with lockwell.connect(toml=file) as first, lockwell.connect(toml=file.read_text()) as second:
        with first.lock("a") as lock:
            assert 2 < lock.time_left <= 3 and first.inspect("a").holders[0].label == "file"
            with pytest.raises(lockwell.TimedOutError, match="10ms"):
                second.lock("a").acquire()
            assert first.promises("fencing") and first.backend == "memory"
        with first.lock("b", wait=None), pytest.raises(lockwell.TimedOutError):
            second.lock("b").acquire()
    with pytest.raises(lockwell.InvalidInputError, match="ttl is set twice"):
        lockwell.connect("memory://?ttl=3s", ttl=4)
    with pytest.raises(lockwell.UnsupportedError, match="across-hosts"):
        lockwell.connect("memory://", require=["across-hosts"])
    with pytest.raises(lockwell.InvalidInputError, match="gopher"):
        lockwell.connect("gopher://a")
    monkeypatch.delenv("LOCKWELL_URL", raising=False)
    with pytest.raises(lockwell.InvalidInputError, match="LOCKWELL_URL"):
        lockwell.connect()
    monkeypatch.setenv("LOCKWELL_URL", "memory://configured")
    with lockwell.connect() as third, third.lock("c"):
        pass


def test_a_closed_client_refuses() -> None:
    locks = lockwell.connect("memory://")
    locks.close()
    with pytest.raises(lockwell.ClosedError):
        locks.lock("a").acquire()


def test_the_server_for_tests() -> None:
    server = TestServer()
    with server.locks() as locks:
        server.fail("acquire", "unreachable", times=1)
        with pytest.raises(lockwell.UnreachableError):
            locks.lock("a").acquire()
        with pytest.raises(lockwell.LostError):
            with locks.lock("a", ttl=10) as lock:
                server.advance(11)
                assert not lock.is_held and lock.loss == "expired"
        with pytest.raises(lockwell.LostError):
            with locks.lock("a") as lock:
                assert server.lose("a") == 1
                assert lock.wait_lost(30) == "taken"
        server.delay("inspect", None)
        server.heal()
        server.fail_all("unreachable")
        for call in (locks.lock("b").acquire, locks.held):
            with pytest.raises(lockwell.UnreachableError):
                call()
        server.heal()
        crashed = server.locks().lock("b", ttl=10).acquire()
        assert server.crash("b") == 1
        assert locks.lock("b").try_now() is None
        server.advance(11)
        with locks.lock("b"):
            assert not crashed.is_held
        with pytest.raises(lockwell.LostError):
            crashed.release()
        with pytest.raises(ValueError, match="force_release"):
            server.fail("aquire", "unreachable")
        with pytest.raises(lockwell.LostError):
            with locks.lock("a", max_hold=5) as lock:
                server.advance(6)
                assert lock.loss == "held_too_long"
        with locks.lock("a", progress_within=5) as lock:
            server.advance(3)
            lock.progress()
            server.advance(3)
            lock.check()


def test_a_program_ends_at_once_and_sends_its_releases(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/locks.db"
    program = """
import sys, threading, lockwell
locks = lockwell.connect(sys.argv[1])
lock = locks.lock("dropped", ttl=600).acquire()
other = locks.lock("waited for", ttl=1).acquire()
# A daemon thread waits for a lock while the interpreter ends.
threading.Thread(target=locks.lock("waited for").acquire, daemon=True).start()
del lock
"""
    done = subprocess.run([sys.executable, "-c", program, url], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    with lockwell.connect(url) as locks:
        locks.lock("dropped", wait=0).acquire().release()
