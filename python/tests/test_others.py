"""Other packages beside this one."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

import lockwell
from servers import ROOT, Servers


# Their thread ends with an exception.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_renewals_by_a_thread_of_python_stop_with_the_interpreter(redis_url: str) -> None:
    redis, redis_lock = pytest.importorskip("redis"), pytest.importorskip("redis_lock")
    with redis.Redis.from_url(redis_url) as client, lockwell.connect(redis_url) as locks:
        theirs = redis_lock.Lock(client, "others", expire=1, auto_renewal=True)
        assert theirs.acquire(blocking=False)
        with locks.lock("others", ttl=1) as ours:
            # With the interpreter lock.
            ctypes.PyDLL(None).sleep(3)
            ours.check()
            assert client.get("lock:others") is None
        with pytest.raises(redis_lock.NotAcquired):
            theirs.release()


def test_the_measurement_works(servers: Servers) -> None:
    command = [sys.executable, str(ROOT / "python/bench.py"), "--rounds", "1"]
    command += ["--redis", servers.url("redis"), "--zookeeper", servers.url("zookeeper")]
    command += ["--etcd", servers.url("etcd")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0 and not done.stderr, done.stderr
    lines = done.stdout.splitlines()[2:]
    assert len(lines) == 15, done.stdout
    # "2437 (2400 to 2500)" at the end of each.
    assert all(int(line.split()[-4]) > 0 for line in lines), done.stdout
