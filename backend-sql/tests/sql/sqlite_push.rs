//! How fast a lock goes from process to process in an SQLite file, and what it costs to wait. Measurements,
//! to be run by hand: `cargo test -p lockwell-sql --all-features --test sql -- --ignored --nocapture
//! sqlite_push`.

use crate::servers::{Kind, client, url};
use crate::sqlite_child::ask;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn measure_hand_over() {
    for order in ["alternate", "alternate-1", "alternate-400"] {
        let url = url(Kind::Sqlite, "push").await.expect("no server is needed");
        let (one, two) = tokio::join!(ask(order, &url), ask(order, &url));
        let mut times = Vec::new();
        for (who, said) in [one, two].iter().enumerate() {
            for time in said.split(' ') {
                let (what, at) = time.split_at(1);
                times.push((at.parse::<u64>().expect("a number"), what.to_owned(), who));
            }
        }
        times.sort_unstable();
        let handed = |pair: &[(u64, String, usize)]| {
            (pair[0].1 == "-" && pair[1].1 == "+" && pair[0].2 != pair[1].2).then(|| pair[1].0 - pair[0].0)
        };
        let mut spans: Vec<_> = times.windows(2).filter_map(handed).collect();
        spans.sort_unstable();
        let at = |part: usize| spans[spans.len() * part / 100] / 1000;
        println!("{order}: {} hand-overs, p10 {} p50 {} p90 {} us", spans.len(), at(10), at(50), at(90));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn measure_waiting() {
    let url = url(Kind::Sqlite, "wait").await.expect("no server is needed");
    let locks = client(Kind::Sqlite, &url).await;
    let guard = locks.lock("a").await.expect("a free lock");
    println!("100 waiters: {} hundredths of a second in ten seconds", ask("wait", &url).await);
    guard.release().await.expect("held");
}
