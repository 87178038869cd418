//! Other processes on the same SQLite file: this test binary once more, with an order in its environment.

use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::servers::{Kind, client};

const ORDER: &str = "LOCKWELL_TEST_ORDER";

/// The command that runs `order` in another process.
pub(crate) fn command(order: &str, url: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    command.args(["sqlite_child::child", "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
    command.env(ORDER, format!("{order} {url}")).stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

/// What `order` prints behind `=>`.
pub(crate) async fn ask(order: &str, url: &str) -> String {
    let mut command = command(order, url);
    let output =
        tokio::task::spawn_blocking(move || command.output().expect("it runs")).await.expect("no panic");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let answer = text.lines().find_map(|line| line.split_once("=> "));
    answer.unwrap_or_else(|| panic!("no answer: {text}")).1.to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "other tests start it"]
async fn child() {
    let Ok(order) = std::env::var(ORDER) else { return };
    let (order, url) = order.split_once(' ').expect("an order and an address");
    match order {
        // Whether the lock `a` can be had.
        "try" => {
            let locks = client(Kind::Sqlite, url).await;
            let guard = locks.lock("a").try_now().await.expect("an answer");
            println!("=> {}", if guard.is_some() { "granted" } else { "held" });
        }
        // Whether the file is taken.
        "connect" => match crate::servers::backend(Kind::Sqlite, url).await {
            Ok(lock) => {
                let found = lock.examine().await.expect("an answer");
                println!("=> connected {:?}", found.iter().map(|one| one.subject).collect::<Vec<_>>());
            }
            Err(error) => println!("=> {:?}: {error}", error.kind()),
        },
        // Waits for the lock `a`, and releases it.
        "turn" => {
            let locks = client(Kind::Sqlite, url).await;
            let guard = locks.lock("a").wait(Duration::from_mins(1)).await.expect("its turn comes");
            guard.release().await.expect("held");
            println!("=> done");
        }
        // Takes the lock `a` again and again, and says when it got it and when it began to release it.
        "alternate" => alternate(url, 0.0).await,
        "alternate-1" => alternate(url, 1.0).await,
        "alternate-400" => alternate(url, 400.0).await,
        // All kinds of requests, with marks of what was answered.
        "record" => crate::sqlite_power::everything(url).await,
        // Takes locks while the disk refuses to sync, and later.
        "sick-disk" => crate::sqlite_sync::on_a_sick_disk(url).await,
        // A hundred waiters for a lock that is held; how much time of the processor they cost.
        "wait" => {
            let locks = client(Kind::Sqlite, url).await;
            for _ in 0..100 {
                tokio::spawn(locks.lock("a").wait(Duration::from_mins(1)).into_future());
            }
            tokio::time::sleep(Duration::from_secs(3)).await;
            let before = ticks();
            tokio::time::sleep(Duration::from_secs(10)).await;
            println!("=> {}", ticks() - before);
            std::process::exit(0);
        }
        other => panic!("an unknown order: {other}"),
    }
}

async fn alternate(url: &str, hold: f64) {
    let locks = client(Kind::Sqlite, url).await;
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_nanos();
    let mut times = Vec::new();
    let rounds = if hold > 100.0 { 20 } else { 500 };
    while times.len() < rounds * 2 {
        let guard = locks.lock("a").wait(Duration::from_mins(1)).await.expect("its turn comes");
        times.push(format!("+{}", now()));
        tokio::time::sleep(Duration::from_secs_f64(hold / 1000.0)).await;
        times.push(format!("-{}", now()));
        guard.release().await.expect("held");
        // Not at once, so that nobody but the other one writes while the lock goes over.
        if hold > 100.0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    println!("=> {}", times.join(" "));
}

/// The time of the processor that this process has used, in hundredths of a second.
fn ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let fields: Vec<_> = stat.rsplit(')').next().expect("fields").split_whitespace().collect();
    fields[11..13].iter().map(|one| one.parse::<u64>().expect("a number")).sum()
}
