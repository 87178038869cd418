"""A job of APScheduler that is done once each night, though every host runs this program."""

from datetime import UTC, datetime

import lockwell
from apscheduler.schedulers.blocking import BlockingScheduler

# The address is in LOCKWELL_URL.
locks = lockwell.connect()
scheduler = BlockingScheduler(timezone="UTC")


def report(night, run):
    print(f"the report of {night}, attempt {run.attempt}")


# One that is late by more than an hour is left out: after midnight it would be that of the next night.
@scheduler.scheduled_job("cron", hour=3, misfire_grace_time=3600)
def nightly():
    night = f"{datetime.now(UTC):%Y-%m-%d}"
    # Who waits takes over from a host that dies. The longest wait is shorter than the time to the next night.
    job = locks.once("nightly-report", night, wait=6 * 3600, max_hold=2 * 3600)
    job.run(lambda run: report(night, run))


scheduler.start()
