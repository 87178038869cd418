"""Real lock servers for one run of the tests: `cargo xtask servers` starts them, and stops them with us."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
# What each of them needs.
PROGRAMS = {
    "redis": "redis-server",
    "postgres": "pg_ctl",
    "mariadb": "mariadbd",
    "zookeeper": "java",
    "etcd": "etcd",
}
# Where tests with the fixture `url` or `locks` run. etcd is not among them: many of the tests have leases of
# 1 s, so as not to take long, and its shortest one is 2 s.
BACKENDS = ["sqlite", "redis", "postgres", "mariadb", "zookeeper"]
# For a test whose leases are long enough: it runs on etcd as well.
also_on_etcd = pytest.mark.parametrize("url", [*BACKENDS, "etcd"], indirect=True)


def program(name: str) -> list[str]:
    """A program of this repository, which `.ci/run` has built; or cargo, which builds it."""
    package = {"lockwell": "lockwell-cli"}.get(name, name)
    built = TARGET / "debug" / name
    return [str(built)] if built.exists() else ["cargo", "run", "--quiet", "--package", package, "--"]


class Servers:
    """The servers that were started so far."""

    def __init__(self) -> None:
        self._urls: dict[str, str | None] = {}
        self._running: list[subprocess.Popen[str]] = []

    def url(self, name: str) -> str:
        """The address of this server, which is started if necessary; the test is skipped if it is not
        installed.
        """
        if name not in self._urls:
            self._urls[name] = self._start(name)
        url = self._urls[name]
        if url is None:
            missing = f"{name} is not installed: {PROGRAMS[name]}"
            if os.environ.get("LOCKWELL_REQUIRE_SERVERS") == "1":
                pytest.fail(missing)
            pytest.skip(missing)
        return url

    def _start(self, name: str) -> str | None:
        places = os.pathsep.join(
            [os.environ["PATH"], "/usr/sbin", *map(str, Path("/usr/lib/postgresql").glob("*/bin"))]
        )
        if shutil.which(PROGRAMS[name], path=places) is None:
            return None
        started = subprocess.Popen(
            [*program("xtask"), "servers", name],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._running.append(started)
        assert started.stdout is not None
        line = started.stdout.readline()
        assert line.startswith(f"{name}: "), f"{name} has not started: {line!r}"
        return line.split(": ", 1)[1].strip()

    def stop(self) -> None:
        for running in self._running:
            running.send_signal(signal.SIGINT)
        for running in self._running:
            running.wait(60)
            assert running.stdout is not None
            running.stdout.close()
