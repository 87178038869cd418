"""Each example of the README is run, with the real servers in place of those that it names."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from servers import ROOT, Servers

README = (ROOT / "python/README.md").read_text(encoding="utf-8")

# What an example needs before it, and what is done with it.
AROUND: dict[str, tuple[str, str]] = {
    "Django": (
        """
from django.conf import settings
settings.configure()
import django
django.setup()
import lockwell
client = lockwell.connect("sqlite://locks.db")
def locks():
    return client
""",
        """
if "deliver" in globals():
    assert deliver(None, 7).status_code == 200
    locks = lambda: Never
    class Never:
        @staticmethod
        def lock(name, **options):
            return client.lock(name, wait=0)
    with client.lock("orders/7"):
        assert deliver(None, 7).status_code == 503
else:
    from django.core.management import call_command
    from io import StringIO
    def said():
        out = StringIO()
        call_command(Command(), stdout=out)
        return out.getvalue().strip()
    assert said() == "done"
    with client.lock("nightly"):
        assert said() == "another host does it"
""",
    ),
    "Celery": (
        "",
        """
connect()
app.conf.task_always_eager = True
assert nightly.delay().get() == "done"
with locks.lock("nightly"):
    assert nightly.delay().get() == "another worker does it"
""",
    ),
}


def examples() -> list[tuple[str, str]]:
    """The blocks of Python, each with its heading."""
    found, heading = [], ""
    for part in re.finditer(r"^#+ ([^\n]+)$|^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL):
        if part[1]:
            heading = part[1]
        else:
            found.append((heading, part[2]))
    return found


def test_none_is_missed() -> None:
    assert len(examples()) == README.count("```python") >= 9


@pytest.mark.parametrize(("heading", "code"), [pytest.param(*one, id=one[0]) for one in examples()])
def test_an_example(heading: str, code: str, servers: Servers, tmp_path: Path) -> None:
    for address, name in (("127.0.0.1:6379", "redis"), ("127.0.0.1:2181", "zookeeper")):
        if address in code or (name == "redis" and "port=6379" in code):
            place = urlsplit(servers.url(name))
            code = code.replace(address, place.netloc).replace("port=6379", f"port={place.port}")
    before, after = AROUND.get(heading, ("", ""))
    done = subprocess.run(
        [sys.executable, "-c", before + code + after],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0 and not done.stderr, done.stderr
