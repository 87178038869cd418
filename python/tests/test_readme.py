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
    "pytest": (
        "",
        """
import pathlib, pytest, sys
pathlib.Path("test_it.py").write_text(sys.argv[1])
assert pytest.main(["--quiet", "-p", "no:cacheprovider", "test_it.py"]) == 0
""",
    ),
    "FastAPI": (
        "",
        """
import asyncio
import httpx
async def twice():
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://app") as client:
        delivered = [await client.post("/orders/7/delivery") for _ in range(2)]
        assert delivered[0].json()["token"] < delivered[1].json()["token"]
        async with locks.lock("orders/7"):
            assert (await client.post("/orders/7/delivery")).status_code == 503
        await asyncio.gather(*(client.post("/orders/8/delivery") for _ in range(9)))
asyncio.run(twice())
""",
    ),
    "SQLAlchemy": (
        "",
        """
with engine.begin() as connection:
    connection.execute(text("CREATE TABLE orders (id integer, delivered boolean)"))
    connection.execute(text("INSERT INTO orders VALUES (7, false), (8, false)"))
def delivered():
    with engine.connect() as connection:
        return connection.scalars(text("SELECT id FROM orders WHERE delivered ORDER BY id")).all()
deliver(7)
assert delivered() == [7]
# Another takes the lock away before the transaction looks.
class Thief(Session):
    def __enter__(self):
        locks.force_release("orders/8")
        return super().__enter__()
Session = Thief
try:
    deliver(8)
except lockwell.LostError:
    assert delivered() == [7]
else:
    raise AssertionError("it was delivered without the lock")
""",
    ),
    "APScheduler": (
        """
import apscheduler.schedulers.background as background
import queue
done = queue.Queue()
class Often(background.BackgroundScheduler):
    def add_job(self, job, kind, words, **time):
        assert (job, kind, words, time) == (print, "cron", ["done"], {"hour": 3})
        super().add_job(done.put, "interval", words, seconds=0.05)
    def shutdown(self):
        super().shutdown()
        while not done.empty():
            done.get()
        done.put("over")
background.BackgroundScheduler = Often
""",
        """
assert done.get(timeout=60) == "done"
with lockwell.connect("redis://127.0.0.1:6379") as others:
    assert others.lock("scheduler").try_now() is None
    # Leadership is lost, and comes back.
    assert others.force_release("scheduler") == 1
    while done.get(timeout=60) != "over":
        pass
    assert done.get(timeout=60) == "done"
    assert others.lock("scheduler").try_now() is None
""",
    ),
    "Django": (
        """
from django.conf import settings
settings.configure()
import django
django.setup()
""",
        """
if "deliver" in globals():
    assert deliver(None, 7).status_code == 200
    with locks.lock("orders/7"):
        assert deliver(None, 7).status_code == 503
else:
    from django.core.management import call_command
    from io import StringIO
    def said():
        out = StringIO()
        call_command(Command(), stdout=out)
        return out.getvalue().strip()
    assert [said(), said()] == ["ran", "done"]
""",
    ),
    "Celery": (
        "",
        """
app.conf.task_always_eager = True
assert [nightly.delay("2026-11-29").get(), nightly.delay("2026-11-29").get()] == ["ran", "done"]
""",
    ),
}
# The servers that examples name, and the ports that stand elsewhere.
ADDRESSES = {
    "127.0.0.1:6379": "redis",
    "port=6379": "redis",
    "127.0.0.1:2181": "zookeeper",
    "127.0.0.1:5432": "postgres",
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
    assert len(examples()) == README.count("```python") >= 11
    assert AROUND.keys() <= {heading for heading, _ in examples()}


def test_links_lead_somewhere_from_every_place() -> None:
    """On PyPI a relative link leads nowhere."""
    beginning = "https://github.com/lockwell/lockwell/blob/main/"
    targets = re.findall(r"\]\(([^)]+)\)|^\[[^\]]+\]: (\S+)$", README, re.MULTILINE)
    within = [one for one, _ in targets if one.startswith("#")]
    others = [one or other for one, other in targets if not one.startswith("#")]
    assert len(within) >= 1 and len(others) >= 6
    headings = {
        line.lstrip("# ").lower().replace(" ", "-") for line in README.splitlines() if line[:1] == "#"
    }
    assert all(one[1:] in headings for one in within), within
    assert all((ROOT / one.removeprefix(beginning)).is_file() for one in others), others


@pytest.mark.parametrize(("heading", "code"), [pytest.param(*one, id=one[0]) for one in examples()])
def test_an_example(heading: str, code: str, servers: Servers, tmp_path: Path) -> None:
    before, after = AROUND.get(heading, ("", ""))
    whole = before + code + after
    for address, name in ADDRESSES.items():
        if address in whole:
            place = urlsplit(servers.url(name))
            there = f"{place.hostname}:{place.port}" if address[0].isdigit() else f"port={place.port}"
            whole = whole.replace(address, there)
    done = subprocess.run(
        [sys.executable, "-c", whole, code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0 and not done.stderr, done.stderr
