"""The fixtures for tests of applications, as pytest finds them in any folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = """
import os
import subprocess
import sys

import lockwell
import pytest

# Of tests before, which have not released them.
HELD, CLIENTS = [], []


@pytest.mark.parametrize("again", [False, True])
def test_each_has_its_own_locks(lockwell_locks, lockwell_url, lockwell_server, again):
    HELD.append(lockwell_locks.lock("a", ttl=60).acquire())
    assert lockwell_locks.lock("a").try_now() is None
    server = lockwell_server.locks()
    HELD.append(server.lock("a", ttl=60).acquire())
    with lockwell.connect() as locks, lockwell.connect(lockwell_url) as others:
        HELD.append(locks.lock("a", ttl=60).acquire())
        assert others.lock("a").try_now() is None
        program = "import lockwell; assert lockwell.connect().lock('a').try_now() is None"
        subprocess.run([sys.executable, "-c", program], check=True)


def test_the_variable_is_as_before():
    assert "LOCKWELL_URL" not in os.environ


def test_the_clock_is_that_of_the_test(lockwell_server):
    with pytest.raises(lockwell.LostError), lockwell_server.locks().lock("a", ttl=60) as lock:
        lockwell_server.advance(61)
        assert not lock.is_held


def test_the_client_is_closed_at_the_end(lockwell_locks):
    CLIENTS.append(lockwell_locks)


def test_it_was_closed():
    with pytest.raises(lockwell.ClosedError):
        CLIENTS.pop().lock("a").acquire()
    for lock in HELD:
        lock._guard.drop_soon()
"""


def test_fixtures_are_found(tmp_path: Path) -> None:
    (tmp_path / "test_application.py").write_text(TESTS)
    environment = {name: value for name, value in os.environ.items() if name != "LOCKWELL_URL"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-W", "error", "-p", "no:cacheprovider", "--rootdir", "."],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0 and "6 passed" in done.stdout, done.stdout + done.stderr
