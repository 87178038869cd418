mod failures;
mod flights;
mod load;
mod sending;

use std::collections::HashSet;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Semaphore;

use super::batcher::{Attempt, Batcher, Bounds, CallOutcome, Reply, Service, no_answer};
use crate::system::{lock, poll_once};
use crate::{Error, ErrorKind, Result};

/// A server whose calls wait for permits, and do as their requests say.
#[derive(Default)]
struct Server {
    calls: Mutex<Vec<Vec<u32>>>,
    /// Keys whose calls never end.
    hung: Mutex<HashSet<u8>>,
    go: Option<Arc<Semaphore>>,
    /// How many more permits the first call waits for, one after the other.
    more_parts: AtomicUsize,
    failures: AtomicUsize,
    /// All senders are tasks.
    tasks_only: bool,
    doubts: AtomicUsize,
    /// How often two requests were compared.
    looks: AtomicUsize,
}

const PANICS: u32 = 666;
const BLOCKS: u32 = 777;
const UNWANTED: u32 = 888;
const CLOSES: u32 = 999;
const REFUSED: u32 = 555;
const HANGS: u32 = 444;
/// From here on, few share a call.
const LARGE: u32 = 5000;

impl Service for Server {
    type Key = u8;
    type Request = u32;
    type Answer = u32;

    fn shares(&self, first: &u32, other: &u32) -> bool {
        self.looks.fetch_add(1, Ordering::SeqCst);
        first % 2 == other % 2
    }

    fn most(&self, first: &u32) -> usize {
        if *first >= LARGE { 2 } else { usize::MAX }
    }

    fn is_about_one(&self, first: &u32, other: &u32) -> bool {
        first == other
    }

    fn urgency(&self, request: &u32) -> u8 {
        self.looks.fetch_add(1, Ordering::SeqCst);
        u8::from(*request < 1000)
    }

    fn is_light(&self, _: &u8, _: &u32) -> bool {
        !self.tasks_only
    }

    fn is_wanted(&self, request: &u32) -> bool {
        *request != UNWANTED
    }

    fn note_in_doubt(&self, _: &u32) {
        self.doubts.fetch_add(1, Ordering::SeqCst);
    }

    async fn call(&self, key: &u8, batch: &[&u32], _: Attempt) -> Vec<CallOutcome<u32>> {
        lock(&self.calls).push(batch.iter().map(|one| **one).collect());
        if lock(&self.hung).contains(key) || batch.contains(&&HANGS) {
            std::future::pending::<()>().await;
        }
        match &self.go {
            Some(go) => go.acquire().await.unwrap().forget(),
            None => tokio::task::yield_now().await,
        }
        while let (Some(go), 1..) = (&self.go, self.more_parts.load(Ordering::SeqCst)) {
            go.acquire().await.unwrap().forget();
            self.more_parts.fetch_sub(1, Ordering::SeqCst);
        }
        assert!(!batch.contains(&&PANICS), "as expected");
        let fails = self.failures.load(Ordering::SeqCst) > 0;
        if fails {
            self.failures.fetch_sub(1, Ordering::SeqCst);
        }
        let is_blocked = batch.len() > 1 && batch.contains(&&BLOCKS);
        let outcome = |one: &&u32| match **one {
            _ if fails || batch.contains(&&CLOSES) => {
                CallOutcome::Unknown(Error::new(ErrorKind::Unreachable, "the connection broke"))
            }
            _ if is_blocked => CallOutcome::Blocked,
            _ if batch.contains(&&REFUSED) => {
                CallOutcome::Refused(Error::new(ErrorKind::InvalidInput, "it cannot be encoded"))
            }
            one => CallOutcome::Answered(one * 10),
        };
        batch.iter().map(outcome).collect()
    }
}

const LONG: Duration = Duration::from_secs(20);

fn batcher(server: Server, bounds: Bounds) -> Batcher<Server> {
    Batcher::new(server, bounds)
}

fn answer(reply: crate::Result<Reply<u32>>) -> u32 {
    reply.unwrap().into_answer()
}

fn calls(batcher: &Batcher<Server>) -> Vec<Vec<u32>> {
    lock(&batcher.service().calls).clone()
}

/// Lets the other tasks run.
async fn let_others_run() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn requests_that_meet_share_a_call() {
    let go = Arc::new(Semaphore::new(0));
    let batcher = batcher(Server { go: Some(Arc::clone(&go)), ..Server::default() }, Bounds::default());
    let ask = |number| tokio::spawn(batcher.call(0, number, LONG));
    let mut asked: Vec<_> = [2, 4, 6, 3, 8, 1002].into_iter().map(ask).collect();
    let_others_run().await;
    go.add_permits(10);
    for (task, number) in asked.drain(..).zip([2, 4, 6, 3, 8, 1002]) {
        assert_eq!(answer(task.await.unwrap()), number * 10);
    }
    let calls = calls(&batcher);
    // All that is there is sent: the most urgent one, with what can share its call.
    assert_eq!(calls, [vec![1002, 2, 4, 6, 8], vec![3]]);
}

#[tokio::test]
async fn requests_that_take_long_share_calls_of_few() {
    let go = Arc::new(Semaphore::new(0));
    let batcher = batcher(Server { go: Some(Arc::clone(&go)), ..Server::default() }, Bounds::default());
    let asked: Vec<_> =
        (0..5).map(|number| tokio::spawn(batcher.call(0, LARGE + 2 * number, LONG))).collect();
    let_others_run().await;
    go.add_permits(10);
    for task in asked {
        task.await.unwrap().unwrap();
    }
    assert_eq!(calls(&batcher), [vec![5000, 5002], vec![5004, 5006], vec![5008]]);
}

#[tokio::test]
async fn a_hung_key_holds_up_itself_alone() {
    let batcher = batcher(Server::default(), Bounds::default());
    lock(&batcher.service().hung).insert(1);
    let hung = tokio::spawn(batcher.call(1, 2, Duration::from_millis(300)));
    let_others_run().await;
    for number in 0..100 {
        assert_eq!(answer(batcher.call(0, number, LONG).await), number * 10);
    }
    let error = hung.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    lock(&batcher.service().hung).clear();
    assert_eq!(answer(batcher.call(1, 2, LONG).await), 20, "the key works again");
}

#[tokio::test]
async fn a_caller_that_is_not_polled_holds_nobody_up() {
    for tasks_only in [true, false] {
        not_polled(tasks_only).await;
    }
}

async fn not_polled(tasks_only: bool) {
    let go = Arc::new(Semaphore::new(0));
    let server = Server { go: Some(Arc::clone(&go)), tasks_only, ..Server::default() };
    let batcher = batcher(server, Bounds::default());
    let mut idle = pin!(batcher.call(0, 2, LONG));
    assert!(poll_once(&mut idle).await.is_pending(), "it has begun a call");
    let others: Vec<_> = (0..4).map(|one| tokio::spawn(batcher.call(0, 4 + 2 * one, LONG))).collect();
    let_others_run().await;
    go.add_permits(10);
    for other in others {
        let reply = tokio::time::timeout(LONG / 4, other).await.expect("not held up");
        answer(reply.unwrap());
    }
    assert_eq!(answer(idle.await), 20, "its own answer is there, too");
}

#[tokio::test]
async fn a_caller_that_goes_does_not_end_its_call() {
    let go = Arc::new(Semaphore::new(0));
    let batcher = batcher(Server { go: Some(Arc::clone(&go)), ..Server::default() }, Bounds::default());
    let first = tokio::spawn(batcher.call(0, 2, LONG));
    let_others_run().await;
    let second = tokio::spawn(batcher.call(0, 4, LONG));
    let_others_run().await;
    first.abort();
    go.add_permits(10);
    assert_eq!(answer(second.await.unwrap()), 40);
    // Nor does one that is alone, so that the next finds the way clear.
    let go_on = tokio::spawn(batcher.call(0, 6, LONG));
    let_others_run().await;
    go_on.abort();
    assert_eq!(answer(batcher.call(0, 8, LONG).await), 80);
    assert_eq!(calls(&batcher), [[2], [4], [6], [8]]);
}

#[tokio::test]
async fn a_call_that_all_its_callers_leave_comes_to_its_end() {
    let go = Arc::new(Semaphore::new(0));
    let batcher = batcher(Server { go: Some(Arc::clone(&go)), ..Server::default() }, Bounds::default());
    let mut first = Box::pin(batcher.call(0, 2, LONG));
    assert!(poll_once(&mut first).await.is_pending());
    let mut second = Box::pin(batcher.call(0, 4, LONG));
    assert!(poll_once(&mut second).await.is_pending());
    let_others_run().await;
    drop(first);
    drop(second);
    go.add_permits(1);
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(go.available_permits(), 0, "the call has come to its end");
}

#[tokio::test]
async fn what_was_not_sent_is_not_sent_for_nobody() {
    let go = Arc::new(Semaphore::new(0));
    let batcher = batcher(Server { go: Some(Arc::clone(&go)), ..Server::default() }, Bounds::default());
    let first = tokio::spawn(batcher.call(0, 2, LONG));
    let_others_run().await;
    drop(batcher.call(0, 4, LONG));
    let unwanted = tokio::spawn(batcher.call(0, UNWANTED, LONG));
    let_others_run().await;
    go.add_permits(10);
    answer(first.await.unwrap());
    assert_eq!(unwanted.await.unwrap().unwrap_err().kind(), ErrorKind::Cancelled);
    assert_eq!(calls(&batcher), [[2]]);
}

#[tokio::test]
async fn a_lost_answer_is_asked_for_again_in_doubt() {
    let batcher = batcher(Server { failures: AtomicUsize::new(2), ..Server::default() }, Bounds::default());
    let reply = batcher.call(0, 2, LONG).await.unwrap();
    assert!(reply.into_parts().1);
    assert_eq!(calls(&batcher).len(), 3);
    assert_eq!(batcher.service().doubts.load(Ordering::SeqCst), 2);
    assert!(!batcher.call(0, 2, LONG).await.unwrap().into_parts().1, "the next is not");
}

#[tokio::test]
async fn an_error_tells_what_stood_in_the_way() {
    let server = Server { failures: AtomicUsize::new(usize::MAX), ..Server::default() };
    let error = batcher(server, Bounds::default()).call(0, 2, Duration::from_millis(50)).await.unwrap_err();
    assert!(format!("{error:#}").contains("the connection broke"), "{error:#}");
}

#[tokio::test]
async fn one_that_is_blocked_does_not_block_the_others() {
    let go = Arc::new(Semaphore::new(0));
    let batcher = batcher(Server { go: Some(Arc::clone(&go)), ..Server::default() }, Bounds::default());
    let tasks: Vec<_> = [1, BLOCKS, 3, 3].map(|one| tokio::spawn(batcher.call(0, one, LONG))).into();
    let_others_run().await;
    go.add_permits(10);
    for task in tasks {
        answer(task.await.unwrap());
    }
    let apart = [vec![1, BLOCKS, 3, 3], vec![1], vec![BLOCKS], vec![3, 3]];
    assert_eq!(calls(&batcher), apart);
}

#[tokio::test]
async fn too_many_are_refused() {
    let bounds = Bounds::new().waiting(2);
    let batcher = batcher(Server::default(), bounds);
    let (one, two) = (batcher.call(0, 2, LONG), batcher.call(0, 4, LONG));
    assert_eq!(batcher.call(0, 6, LONG).await.unwrap_err().kind(), ErrorKind::Overloaded);
    assert_eq!(answer(one.await), 20);
    assert_eq!(answer(two.await), 40);
    assert_eq!(answer(batcher.call(0, 6, LONG).await), 60);
}

#[tokio::test]
async fn an_overloaded_server_is_asked_for_no_more() {
    let (clock, go) = (crate::TestClock::new(), Arc::new(Semaphore::new(0)));
    let server = Server { go: Some(Arc::clone(&go)), ..Server::default() };
    let batcher = Batcher::with_clock(server, Bounds::new().batch(1), clock.clock());
    let (limit, half) = (Duration::from_secs(2), Duration::from_secs(1));
    let ask = |one| tokio::spawn(batcher.call(0, one, limit));
    let first = [2, 4, 6, 8].map(ask);
    for _ in 0..2 {
        let_others_run().await;
        clock.advance(half / 2);
        go.add_permits(1);
    }
    let second = [12, 14, 16].map(ask);
    let_others_run().await;
    clock.advance(half * 11 / 10);
    let mut kinds = Vec::new();
    for call in first {
        kinds.push(call.await.unwrap().map(Reply::into_answer).map_err(|error| error.kind()));
    }
    // The third was sent, and has no answer. The last one was not.
    let expected = [Ok(20), Ok(40), Err(ErrorKind::Unreachable), Err(ErrorKind::Overloaded)];
    assert_eq!(kinds, expected);
    let refused = batcher.call(0, 18, limit).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Overloaded, "{refused}");
    let urgent = ask(1002);
    go.add_permits(10);
    for call in second.into_iter().chain([urgent]) {
        answer(call.await.unwrap());
    }
    assert_eq!(answer(batcher.call(0, 18, limit).await), 180, "the queue is short again");
}

#[tokio::test]
async fn a_long_queue_does_not_make_each_call_dearer() {
    let batcher = batcher(Server::default(), Bounds::new().batch(2));
    let mut waiting: Vec<_> = (0..60_000).map(|number| batcher.call(0, number * 2, LONG)).collect();
    // Most of them go, in an order that suits no queue.
    for step in [2, 3] {
        let mut place = 0;
        waiting.retain(|_| {
            place += 1;
            place % step == 0
        });
    }
    assert_eq!(waiting.len(), 10_000);
    let odd = batcher.call(0, 1, LONG);
    assert_eq!(answer(waiting.pop().unwrap().await), 1_199_980);
    let looks = batcher.service().looks.load(Ordering::SeqCst);
    let calls = calls(&batcher).len();
    assert!(looks <= calls * 2 * 1024, "{looks} for {calls} calls");
    assert_eq!(answer(odd.await), 10);
}

#[tokio::test]
async fn a_panic_ends_its_own_call_alone() {
    let batcher = batcher(Server::default(), Bounds::default());
    let error = batcher.call(0, PANICS, LONG).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal);
    assert_eq!(answer(batcher.call(0, 2, LONG).await), 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_crowd_that_comes_and_goes_gets_its_answers() {
    let batcher = batcher(Server::default(), Bounds::new().under_way(2).batch(7));
    let tasks: Vec<_> = (0..200_u32)
        .map(|number| {
            let batcher = batcher.clone();
            tokio::spawn(async move {
                for round in 0..50 {
                    let key = u8::try_from(number % 3).unwrap();
                    let call = batcher.call(key, number, LONG);
                    if (number + round) % 5 == 0 {
                        drop(tokio::time::timeout(Duration::from_micros(u64::from(round)), call).await);
                    } else {
                        assert_eq!(answer(call.await), number * 10);
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        tokio::time::timeout(LONG, task).await.expect("nobody is forgotten").unwrap();
    }
}

/// Requests below 1000 are not urgent.
#[tokio::test]
async fn urgent_requests_go_first_but_none_waits_for_ever() {
    let go = Arc::new(Semaphore::new(0));
    let server = Server { go: Some(Arc::clone(&go)), ..Server::default() };
    let batcher = batcher(server, Bounds::new().batch(1));
    let mut first = pin!(batcher.call(0, 2, LONG));
    assert!(poll_once(&mut first).await.is_pending());
    let_others_run().await;
    let (slow, urgent) = (batcher.call(0, 4, LONG), batcher.call(0, 1004, LONG));
    tokio::time::sleep(Duration::from_millis(300)).await;
    let late = batcher.call(0, 1006, LONG);
    let others = tokio::spawn(async move { tokio::join!(slow, urgent, late) });
    go.add_permits(4);
    assert_eq!(answer(first.await), 20);
    let (slow, urgent, late) = others.await.unwrap();
    assert_eq!([answer(slow), answer(urgent), answer(late)], [40, 10_040, 10_060]);
    // After a quarter of a second all are as urgent, and their order counts.
    assert_eq!(calls(&batcher), [[2], [4], [1004], [1006]]);
}

#[tokio::test]
async fn an_urgent_request_overtakes_others() {
    let go = Arc::new(Semaphore::new(0));
    let server = Server { go: Some(Arc::clone(&go)), ..Server::default() };
    let batcher = batcher(server, Bounds::new().batch(1));
    let mut first = pin!(batcher.call(0, 2, LONG));
    assert!(poll_once(&mut first).await.is_pending());
    let_others_run().await;
    let (slow, urgent) = (batcher.call(0, 4, LONG), batcher.call(0, 1004, LONG));
    let others = tokio::spawn(async move { tokio::join!(slow, urgent) });
    go.add_permits(3);
    assert_eq!(answer(first.await), 20);
    let (slow, urgent) = others.await.unwrap();
    assert_eq!([answer(slow), answer(urgent)], [40, 10_040]);
    assert_eq!(calls(&batcher), [[2], [1004], [4]]);
}

#[tokio::test]
async fn as_many_calls_of_a_key_are_under_way_as_the_bounds_allow() {
    let go = Arc::new(Semaphore::new(0));
    let server = Server { go: Some(Arc::clone(&go)), ..Server::default() };
    let batcher = batcher(server, Bounds::new().under_way(2));
    let mut asked = Vec::new();
    for number in [2, 4, 6] {
        asked.push(tokio::spawn(batcher.call(0, number, LONG)));
        let_others_run().await;
    }
    assert_eq!(calls(&batcher), [[2], [4]]);
    go.add_permits(10);
    for task in asked {
        task.await.unwrap().unwrap();
    }
    assert_eq!(calls(&batcher), [[2], [4], [6]]);
}

#[test]
fn the_last_failure_says_why_there_is_no_answer() {
    let broke = Error::new(ErrorKind::Unreachable, "the connection broke");
    assert_eq!(format!("{:#}", no_answer(Some(&broke))), format!("{broke:#}"));
    let other = no_answer(Some(&Error::new(ErrorKind::Overloaded, "too many")));
    assert_eq!(other.kind(), ErrorKind::Unreachable);
    assert!(format!("{other:#}").contains("too many"), "{other:#}");
    assert!(format!("{other}").contains("does not answer"), "{other}");
    assert_eq!(no_answer(None).kind(), ErrorKind::Unreachable);
}
