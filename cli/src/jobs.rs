//! `lockwell jobs`: what has become of jobs that run once for a key.

use std::time::{Duration, SystemTime};

use lockwell::{Job, JobState, LockName, Locks, Registry};

use crate::args::JobsArgs;
use crate::connect::{Address, Purpose};
use crate::exit::Failure;
use crate::json::{self, JobsReport};
use crate::patience::Patience;
use crate::say::{Voice, printable, rounded};

/// A job is not done within the time, or the key to forget is not known.
const NOT_SO: u8 = 1;

pub(crate) async fn jobs(registry: &Registry, args: &JobsArgs) -> Result<u8, Failure> {
    let purpose = if args.forget.is_some() { Purpose::Locking } else { Purpose::Reading };
    let forgets = match (&args.forget, args.names.as_slice()) {
        (None, _) => None,
        (Some(key), [name]) => Some((name, key)),
        (Some(_), _) => return Err(Failure::usage("--forget needs exactly one NAME")),
    };
    let connection =
        Address::of(&args.server)?.connect(registry, purpose, &mut Patience::none(Voice::Usual)).await?;
    let locks = connection.locks()?;
    if let Some((name, key)) = forgets
        && !locks.forget_job(name, key).await?
    {
        return Err(Failure::new(NOT_SO, format!("the job {name:?} has no key {key:?}")));
    }
    let seen = read(&locks, &args.names).await?;
    let text = if args.json { json::pretty(&JobsReport::new(&seen))? } else { list(&seen) };
    json::print(&text)?;
    match args.done_within {
        Some(time) => check(&locks, &args.names, seen, time).await,
        None => Ok(0),
    }
}

/// The last keys of these jobs, or the last one of each job.
async fn read(locks: &Locks, names: &[LockName]) -> Result<Vec<Job>, Failure> {
    if names.is_empty() {
        return Ok(locks.jobs().await?);
    }
    let mut jobs = Vec::new();
    for name in names {
        jobs.extend(locks.job(name).await?);
    }
    Ok(jobs)
}

/// Complains of each job without a key that was done so lately.
async fn check(locks: &Locks, names: &[LockName], mut seen: Vec<Job>, time: Duration) -> Result<u8, Failure> {
    let mut names = names.to_vec();
    if names.is_empty() {
        names = seen.into_iter().map(|job| job.name).collect();
        // The last key of a job may be under way, and the one before it done in time.
        seen = if names.is_empty() { Vec::new() } else { read(locks, &names).await? };
    }
    let since = SystemTime::now().checked_sub(time);
    let in_time = |job: &Job| {
        let ended = job.began + job.took.unwrap_or_default();
        job.state == JobState::Done && since.is_none_or(|since| ended >= since)
    };
    let late = |name: &&LockName| !seen.iter().any(|job| job.name == **name && in_time(job));
    let late: Vec<_> = names.iter().filter(late).map(|name| format!("{name:?}")).collect();
    match late.as_slice() {
        [] if names.is_empty() => Err(Failure::new(NOT_SO, "no job is known")),
        [] => Ok(0),
        late => {
            let text = format!("not done within {}: {}", rounded(time), late.join(", "));
            Err(Failure::new(NOT_SO, text))
        }
    }
}

fn list(jobs: &[Job]) -> String {
    if jobs.is_empty() {
        return "no job is known\n".to_owned();
    }
    jobs.iter().map(human).collect()
}

fn human(job: &Job) -> String {
    let took = job.took.map_or_else(String::new, |took| format!(", took {}", rounded(took)));
    let by = job.by.as_deref().map_or_else(String::new, |by| format!(" by {}", printable(by)));
    let attempts = if job.attempts == 1 { "attempt" } else { "attempts" };
    format!(
        "{} {}: {}, since {}{by}{took}, {} {attempts}\n",
        job.name,
        job.key,
        json::job_state(job),
        json::instant(job.began),
        job.attempts
    )
}
