"""Processes of Python and of Rust contend for one name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from servers import ROOT, also_on_etcd, program

PYTHON = """
import sys, time, pathlib, lockwell
url, name, file = sys.argv[1:]
with lockwell.connect(url) as locks:
    for _ in range(10):
        with locks.lock(name, wait=100) as lock:
            text = pathlib.Path(file).read_text()
            time.sleep(0.001)
            pathlib.Path(file).write_text(f"{text}python {lock.token}\\n")
"""

RUST = """
for number in 1 2 3 4 5 6 7 8 9 10; do
    "$@" || exit 1
done
"""

# What the command runs under the lock.
WRITES = 'text="$(cat "$FILE"; echo .)"; printf "%srust %s\\n" "${text%.}" "$LOCKWELL_TOKEN" >"$FILE"'


@also_on_etcd
def test_python_and_rust_exclude_each_other(url: str, name: str, tmp_path: Path) -> None:
    file = tmp_path / "holders"
    file.write_text("")
    environment = {**os.environ, "LOCKWELL_URL": url, "FILE": str(file)}
    run = [*program("lockwell"), "run", "--wait", "100s", name, "--", "sh", "-c", WRITES]
    contenders = [
        subprocess.Popen([sys.executable, "-c", PYTHON, url, name, str(file)]),
        subprocess.Popen([sys.executable, "-c", PYTHON, url, name, str(file)]),
        subprocess.Popen(["sh", "-c", RUST, "sh", *run], cwd=ROOT, env=environment),
    ]
    assert [contender.wait(120) for contender in contenders] == [0, 0, 0]
    holders = [line.split() for line in file.read_text().splitlines()]
    # A holder beside another would have lost a line.
    assert sorted(language for language, _ in holders) == ["python"] * 20 + ["rust"] * 10
    tokens = [int(token) for _, token in holders]
    assert tokens == sorted(set(tokens)), "tokens rise from holder to holder"
