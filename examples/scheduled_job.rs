//! What cron does, for several hosts: a job runs once in each period, on one of them. If that host dies
//! meanwhile, another does the job.
//!
//! Each host tries at the beginning of a period. Whoever has the lock looks whether the job of this period is
//! done, does it if not, and writes down that it is. The others wait for the lock, and find it done. The
//! clocks of the hosts need not agree.
//!
//! A job whose host dies is begun anew, so it must be possible to repeat it. The record is refused to a
//! holder with an older token than the last: one that was paused for too long does not undo what its
//! successor wrote.
//!
//! ```text
//! cargo run --example scheduled_job --features sqlite -- sqlite:///shared/locks.db /shared/record 60
//! ```

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lockwell::{LockHandle, Locks};

/// What is written down: the last period whose job is done, and the token of who did it.
async fn read(record: &Path) -> io::Result<(u64, u64)> {
    match tokio::fs::read_to_string(record).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok((0, 0)),
        Err(error) => Err(error),
        Ok(text) => {
            let mut numbers = text.split_whitespace().map(|number| number.parse().map_err(io::Error::other));
            let mut next = || numbers.next().unwrap_or(Ok(0));
            Ok((next()?, next()?))
        }
    }
}

async fn write(record: &Path, period: u64, token: u64) -> io::Result<()> {
    if read(record).await?.1 > token {
        return Err(io::Error::other("another host has written the record since"));
    }
    let new = record.with_extension(format!("{token}"));
    tokio::fs::write(&new, format!("{period} {token}")).await?;
    tokio::fs::rename(&new, record).await
}

/// The job of one period, by whoever has the lock.
async fn once(held: &LockHandle, record: &Path, period: u64, every: u64) -> io::Result<()> {
    if read(record).await?.0 >= period {
        println!("{period} was done by another");
        return Ok(());
    }
    println!("{period} begins, token {}", held.token());
    // The work takes a third of a period.
    tokio::time::sleep(Duration::from_secs(every) / 3).await;
    write(record, period, held.token().get()).await?;
    println!("{period} is done");
    Ok(())
}

/// Tries in each period, for ever. A server that cannot be reached, a lost lock and a failed job are
/// reported, and the next period is another try.
async fn run(locks: &Locks, record: &Path, every: u64) {
    let ttl = locks.capabilities().min_ttl().max(Duration::from_secs(1));
    loop {
        let period = since_1970().as_secs() / every;
        // Longer than a lease: if the host that does the job dies, this one is in the queue and takes over.
        let lock = locks.lock("job/report").ttl(ttl).wait(ttl * 3);
        match lock.run(async |held| once(&held, record, period, every).await).await {
            Ok(Ok(())) => (),
            Ok(Err(error)) => println!("{period} failed: {error}"),
            Err(error) => println!("{period} was not done here: {error}"),
        }
        // At once, if this one took so long.
        let next = Duration::from_secs((period + 1) * every);
        tokio::time::sleep(next.saturating_sub(since_1970())).await;
    }
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().ok_or("usage: scheduled_job URL RECORD SECONDS");
    let (url, record) = (next()?, PathBuf::from(next()?));
    let every: u64 = next()?.parse()?;
    let locks = lockwell::connect(url).await?;
    run(&locks, &record, every.max(1)).await;
    Ok(())
}
