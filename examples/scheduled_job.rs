//! What cron does, for several hosts: a job runs once in each period, on one of them. If that host dies in the
//! middle, another that waits does it again, so it must be possible to repeat it.
//!
//! ```text
//! cargo run --example scheduled_job --features sqlite -- sqlite:///shared/locks.db 60
//! ```

use std::error::Error;
use std::time::{Duration, SystemTime};

use lockwell::{JobRun, Once};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().ok_or("usage: scheduled_job URL SECONDS");
    let locks = lockwell::connect(next()?).await?;
    let every = Duration::from_secs(next()?.parse::<u64>()?.max(1));
    let ttl = locks.capabilities().min_ttl().max(Duration::from_secs(1));
    loop {
        let now = SystemTime::UNIX_EPOCH.elapsed()?;
        // The key names the firing. The clocks of the hosts need not agree.
        let period = now.as_secs() / every.as_secs();
        let report = async |run: JobRun| {
            println!("{period} begins, attempt {}", run.attempt());
            tokio::time::sleep(every / 3).await;
            Ok::<_, lockwell::Error>(())
        };
        // The wait is longer than a lease: who waits takes over from a host that dies.
        match locks.once("job/report", period.to_string()).ttl(ttl).wait(ttl * 3).try_run(report).await {
            Ok(Once::Ran(())) => println!("{period} is done"),
            Ok(Once::Done(_)) => println!("{period} was done by another"),
            Ok(Once::FailedElsewhere(job) | Once::GivenUp(job)) => println!("{period} has failed: {job:?}"),
            Err(error) => println!("{period} was not done here: {error}"),
        }
        let next = Duration::from_secs((period + 1) * every.as_secs());
        tokio::time::sleep(next.saturating_sub(SystemTime::UNIX_EPOCH.elapsed()?)).await;
    }
}
