"""A periodic task of Celery that is done once each night, though every host has a beat of its own.

On every host: celery --app nightly worker --beat
"""

import os
from datetime import UTC, datetime

import lockwell
from celery import Celery
from celery.schedules import crontab
from celery.signals import before_task_publish, worker_process_init

app = Celery("nightly", broker=os.environ["CELERY_BROKER_URL"])
app.conf.timezone = "UTC"
app.conf.beat_schedule = {"nightly": {"task": "nightly.nightly", "schedule": crontab(hour=3, minute=0)}}
locks = None


@worker_process_init.connect
def connect(**_):
    """In each process of the worker, after its fork. The address is in LOCKWELL_URL."""
    global locks
    locks = lockwell.connect()


@before_task_publish.connect(sender="nightly.nightly")
def name_the_night(headers, **_):
    """Beat names the night: a task that waits in its queue until after midnight is still of the day before."""
    headers.setdefault("night", f"{datetime.now(UTC):%Y-%m-%d}")


def report(night, run):
    print(f"the report of {night}, attempt {run.attempt}")


@app.task(bind=True, autoretry_for=(lockwell.UnreachableError,), retry_backoff=True)
def nightly(self):
    # Who waits takes over from a worker that dies. The longest wait is shorter than the time to the next night.
    night = self.request.night
    job = locks.once("nightly-report", night, wait=6 * 3600, max_hold=2 * 3600)
    return job.run(lambda run: report(night, run)).state
