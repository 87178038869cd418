//! Other processes on the same SQLite file or server: this test binary once more, with an order in its environment.

use std::process::{Command, Stdio};
use std::time::Duration;

use crate::servers::{Kind, backend, client};

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
    answer(command(order, url)).await
}

/// What this command of [`command`] prints behind `=>`.
pub(crate) async fn answer(mut command: Command) -> String {
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
        "connect" => match backend(Kind::Sqlite, url).await {
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
        // All kinds of requests, with marks of what was answered.
        "record" => crate::sqlite_power::everything(url).await,
        // Takes locks while the disk refuses to sync, and later.
        "sick-disk" => crate::sqlite_sync::on_a_sick_disk(url).await,
        // Whether the lock `a` of a server can be had, or why nothing can be.
        "server" => {
            let kind = if url.starts_with("postgres") { Kind::Postgres } else { Kind::MariaDb };
            match backend(kind, url).await {
                Ok(_) => {
                    let held = client(kind, url).await.lock("a").try_now().await;
                    println!("=> {:?}", held.map(|held| held.is_some()));
                }
                Err(error) => println!("=> {:?}: {error}", error.kind()),
            }
        }
        other => panic!("an unknown order: {other}"),
    }
}
