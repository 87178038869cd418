"""Programs that are run by a Python of their own."""

from __future__ import annotations

import subprocess
import sys


def run(code: str, *arguments: str) -> None:
    """Runs a program, which must print "done" and nothing else, warnings included."""
    done = subprocess.run(
        # From 3.12 on Python warns of a fork in a program with threads.
        [
            sys.executable,
            "-W",
            "error",
            "-W",
            "ignore:This process:DeprecationWarning",
            "-c",
            code,
            *arguments,
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (0, "done\n") and not done.stderr, done.stderr
