"""Schedulers whose jobs run once for each firing: the examples, on three hosts of which one is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from servers import ROOT

# In place of the report: the first attempt goes on for ever.
REPORT = """
def report(night, run):
    import os, time
    def note(what):
        with open("log", "a") as log:
            print(what, night, run.attempt, os.getpid(), file=log)
    note("began")
    if run.attempt == 1:
        time.sleep(600)
    note("done")
"""

CELERY = ["celery", "--app", "nightly", "worker", "--beat", "--concurrency", "2", "--without-mingle"]
# The package, how often its job fires instead of once a night, what comes behind the report, and how to start
# a host.
EXAMPLES = [
    ("celery", "crontab(hour=3, minute=0)", "1.0", "", ["-m", *CELERY]),
    ("apscheduler", '"cron", hour=3', '"interval", seconds=1', "scheduler.start()", ["nightly.py"]),
]


@contextmanager
def host(command: list[str], folder: Path, number: int, environment: dict[str, str]) -> Iterator[None]:
    """All its processes are of one group."""
    if "celery" in command:
        command = [*command, "--hostname", f"host{number}", "--schedule", f"beat{number}"]
    with (folder / f"host{number}.log").open("w") as output:
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=folder,
            env={**os.environ, **environment},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            yield
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait(30)


def wait_until(folder: Path, is_so: Callable[[list[list[str]]], bool]) -> list[list[str]]:
    """What the reports have noted, as soon as that is so."""
    end = time.monotonic() + 90
    while True:
        log = folder / "log"
        lines = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
        if is_so(lines):
            return lines
        said = "".join(file.read_text() for file in folder.glob("host*.log"))
        assert time.monotonic() < end, f"{lines} {said}"
        time.sleep(0.05)


@pytest.mark.parametrize(("package", "schedule", "often", "behind", "command"), EXAMPLES)
def test_a_job_of_several_hosts_runs_once_though_one_is_killed(
    package: str,
    schedule: str,
    often: str,
    behind: str,
    command: list[str],
    redis_url: str,
    tmp_path: Path,
) -> None:
    pytest.importorskip(package)
    code = (ROOT / f"examples/{package}/nightly.py").read_text(encoding="utf-8")
    assert schedule in code and code.endswith(f"{behind}\n")
    code = code.replace(schedule, often).replace("nightly-report", f"python/{package}")
    (tmp_path / "nightly.py").write_text(code.removesuffix(f"{behind}\n") + REPORT + behind)
    url = redis_url.rstrip("/")
    environment = {"LOCKWELL_URL": f"{url}?ttl=2s", "CELERY_BROKER_URL": f"{url}/4"}
    with (
        host(command, tmp_path, 0, environment),
        host(command, tmp_path, 1, environment),
        host(command, tmp_path, 2, environment),
    ):
        [[_, night, _, process]] = wait_until(tmp_path, lambda lines: len(lines) == 1)
        os.killpg(os.getpgid(int(process)), signal.SIGKILL)
        wait_until(tmp_path, lambda lines: any(line[0] == "done" for line in lines))
        # The job fires again, and is done.
        time.sleep(3)
        lines = wait_until(tmp_path, lambda _: True)
    of_night = [[what, attempt] for what, of, attempt, _ in lines if of == night]
    assert of_night == [["began", "1"], ["began", "2"], ["done", "2"]], lines
