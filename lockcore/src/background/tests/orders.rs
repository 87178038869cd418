//! The rows of a client under all orders of its threads: each row ends once, and no other with it.
//!
//! Each model names a change of the code that it has caught.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use async_trait::async_trait;
use loom::future::block_on;
use loom::thread::spawn;
use tracing::Span;

use super::*;
use crate::background::Stub;
use crate::contract::Class;
use crate::life::Limits;
use crate::system::{KEEPER, in_model};
use crate::{
    Capabilities, DistributedLock, FencingToken, Grant, LockName, LockStatus, Mode, Renewal, Result,
    TestClock, Wait,
};

const TTL: Duration = Duration::from_secs(60);

/// How often a thread is interrupted where it could go on, unless `LOOM_MAX_PREEMPTIONS` says something else.
const PREEMPTIONS: usize = 2;

/// A server that answers releases, after a while.
#[derive(Debug)]
struct Server(Clock);

#[async_trait]
impl DistributedLock for Server {
    fn capabilities(&self) -> Capabilities {
        crate::MemoryLock::new().capabilities()
    }

    fn clock(&self) -> Clock {
        self.0.clone()
    }

    async fn acquire(&self, _: &Claim) -> Result<Option<Grant>> {
        Ok(None)
    }

    async fn renew(&self, _: &[Grant], _: Moment) -> Vec<Renewal> {
        Vec::new()
    }

    async fn release(&self, _: &Claim) -> Result<Released> {
        let mut polls = 0;
        std::future::poll_fn(|cx| {
            polls += 1;
            // A stub polls it twice at first.
            if polls <= 2 {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Ready(Ok(Released::Released))
        })
        .await
    }

    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        Ok(LockStatus::new(name.clone(), Vec::new(), 0))
    }

    async fn force_release(&self, _: &LockName) -> Result<usize> {
        Ok(0)
    }
}

/// A lock that the server has granted.
fn held(book: &Arc<Book>, name: &str) -> (Stub, Arc<HeldLock>) {
    let name = LockName::new(name).unwrap();
    let claim = Claim::new(name, Mode::Exclusive, TTL, Wait::No, "test".into());
    let claim = claim.with_clock(book.clock.clone());
    let grant = Grant::new(&claim, FencingToken::new(1), book.clock.now());
    let stub = book.adopt(&claim);
    let held = Arc::new(HeldLock::new(grant, Class::default(), Limits::default(), &book.telemetry));
    stub.keep(&held);
    (stub, held)
}

/// What the keeper does at this time. The server answers at once.
fn looks(book: &Arc<Book>, clock: &TestClock, later: Duration) {
    clock.advance(later);
    let found = book.find(&mut book.rows(), None);
    for claim in found.released {
        book.step(&claim, Act::Freed(Ok(Released::Released), 0.5));
    }
}

/// A lock is released, or its release is dropped before the answer, while its lease is renewed and the keeper looks.
/// Then another one is taken.
///
/// Caught: a row is taken out that is another claim's now (`Rows::take`); a stub that is dropped does not leave its
/// row to the keeper (`leave`).
#[test]
fn each_row_ends_once() {
    KEEPER.get().unwrap();
    for is_dropped in [false, true] {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound.get_or_insert(PREEMPTIONS);
        let model = move || {
            let clock = TestClock::new();
            let book = Book::new(Arc::new(Server(clock.clock()))).unwrap();
            // The thread of the keeper does not look.
            book.rows().wakes = Some(Moment::from_nanos(0));
            let (stub, lock) = held(&book, "a");
            let keeper = {
                let (book, clock) = (Arc::clone(&book), clock.clone());
                spawn(move || looks(&book, &clock, TTL / 3))
            };
            let renewal = {
                let book = Arc::clone(&book);
                spawn(move || {
                    let now = book.clock.now();
                    lock.on(now, Event::Renewed(now, now.after(TTL)));
                    book.look_again();
                })
            };
            let mut releasing = Box::pin(stub.release(true, Span::none()));
            let polled = Pin::new(&mut releasing).poll(&mut Context::from_waker(Waker::noop()));
            assert!(polled.is_pending());
            if is_dropped {
                drop(releasing);
            } else {
                assert_eq!(block_on(releasing).unwrap(), Released::Released);
            }
            let (other, _) = held(&book, "b");
            keeper.join().unwrap();
            renewal.join().unwrap();
            looks(&book, &clock, TTL / 6);
            let rows = book.rows();
            let left: Vec<_> = rows.slab.iter().map(|(_, row)| row.claim.is(other.claim())).collect();
            assert_eq!(left, [true], "the row of the other claim is left");
            drop(rows);
            drop(other);
            looks(&book, &clock, Duration::ZERO);
            assert!(book.rows().slab.is_empty());
        };
        in_model(|| builder.check(model));
    }
}
