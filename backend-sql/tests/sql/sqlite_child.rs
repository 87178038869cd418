//! Other processes on the same SQLite file: this test binary once more, with an order in its environment.

use std::process::{Command, Stdio};

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
        other => panic!("an unknown order: {other}"),
    }
}
