//! A runtime that is not driven any more keeps no transaction on an SQLite file open, at whatever moment that
//! happens: others could not write to the file, and would lose their leases.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use lockwell_core::Mode;
use tokio::runtime::{Builder, Runtime};

use crate::servers::{Kind, admin, backend, claim, url};

const TTL: Duration = Duration::from_mins(1);

/// Drives the runtime in small steps until the work is done. Between them, somebody else must be able to
/// write.
fn in_steps<T>(runtime: &Runtime, others: &Runtime, url: &str, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    for _ in 0..10_000 {
        let polled = runtime.block_on(async {
            let polled = poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx))).await;
            // Lets the tasks run that are ready.
            tokio::task::yield_now().await;
            polled
        });
        if let Poll::Ready(done) = polled {
            return done;
        }
        // What was sent to the thread of the connection is carried out.
        std::thread::sleep(Duration::from_millis(20));
        others.block_on(admin(Kind::Sqlite, url, "BEGIN IMMEDIATE; COMMIT"));
    }
    panic!("the work is not done");
}

#[test]
fn a_claim_that_is_not_driven_blocks_no_other_writer() {
    let runtime = || Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (runtime, others) = (runtime(), runtime());
    let url = others.block_on(url(Kind::Sqlite, "undriven")).expect("no server is needed");
    let one = runtime.block_on(backend(Kind::Sqlite, &url)).expect("a file");
    let acquire = |name: &str, mode, ttl| {
        let (one, claim) = (&one, claim(name, mode, ttl));
        async move { one.acquire(&claim).await.expect("an answer").expect("free") }
    };
    // The state of the tables must be raised: after a start of the host, and for a lease that is longer than
    // all before.
    runtime.block_on(acquire("first", Mode::Exclusive, TTL));
    others.block_on(admin(Kind::Sqlite, &url, "UPDATE undriven_state SET boot = 'another', raised_at = 0"));
    in_steps(&runtime, &others, &url, acquire("second", Mode::Exclusive, TTL));
    in_steps(&runtime, &others, &url, acquire("third", Mode::Exclusive, TTL * 2));
    // A group whose members are gone.
    runtime.block_on(acquire("group", Mode::Shared, Duration::from_millis(100)));
    std::thread::sleep(Duration::from_millis(200));
    in_steps(&runtime, &others, &url, acquire("group", Mode::Exclusive, TTL));
}
