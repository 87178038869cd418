//! A bound on the requests that are under way.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use lockwell_core::backend::lock;
use lockwell_core::{Error, ErrorKind, Moment, Result};
use tokio::sync::oneshot;

/// How many requests are under way at a time. With thousands, a busy server would answer the last ones so
/// late that they would be repeated, and then be busier.
const UNDER_WAY: usize = 256;

/// A turn that has lasted for longer does not count any more: nobody may poll the future that has it.
const LONGEST: Duration = Duration::from_secs(5);

/// The turns of one runtime.
pub(crate) struct RuntimeTurns {
    /// Of claims and other requests.
    pub(crate) requests: Arc<Turns>,
    /// Of those who wait for a lock: their leases end if they are not extended.
    pub(crate) looks: Arc<Turns>,
}

impl RuntimeTurns {
    pub(crate) fn new() -> Self {
        let requests = Turns::new();
        let looks = Turns { answered: Arc::clone(&requests.answered), ..Turns::new() };
        Self { requests: Arc::new(requests), looks: Arc::new(looks) }
    }

    /// A server has answered.
    pub(crate) fn answered(&self) {
        self.requests.answered();
    }
}

/// Turns that are given in the order in which they are asked for.
pub(crate) struct Turns {
    given: Mutex<Given>,
    longest: Duration,
    /// When a server has answered last.
    answered: Arc<Mutex<Option<Moment>>>,
}

#[derive(Default)]
struct Given {
    under_way: usize,
    /// Those that count, and some that do not any more.
    turns: VecDeque<Weak<Counted>>,
    waiting: VecDeque<oneshot::Sender<RequestTurn>>,
}

struct Counted {
    begun: Moment,
    is_over: AtomicBool,
}

/// The right to send requests, one after the other, until it is dropped.
pub(crate) struct RequestTurn {
    turns: Arc<Turns>,
    counted: Arc<Counted>,
}

impl Turns {
    fn new() -> Self {
        Self { given: Mutex::default(), longest: LONGEST, answered: Arc::default() }
    }

    /// Waits for a turn.
    ///
    /// # Errors
    /// [`Overloaded`](ErrorKind::Overloaded) if there is none until then although the servers answer.
    ///
    /// # Cancel safety
    /// Cancel safe: the place among those who wait is left.
    pub(crate) async fn take(self: &Arc<Self>, until: Moment) -> Result<RequestTurn> {
        let asked = Moment::now();
        let mut turn = {
            let (sender, turn) = oneshot::channel();
            lock(&self.given).waiting.push_back(sender);
            turn
        };
        loop {
            self.pass_on();
            let look = (self.longest / 5).min(until.remaining());
            if let Ok(turn) = tokio::time::timeout(look, &mut turn).await {
                return turn.map_err(|_| Error::new(ErrorKind::Internal, "a turn was forgotten"));
            }
            if until.has_passed() {
                let is_answered = lock(&self.answered).is_some_and(|answered| answered >= asked);
                return Err(if is_answered {
                    let text = "requests come faster than the servers answer them";
                    Error::new(ErrorKind::Overloaded, text)
                } else {
                    Error::new(ErrorKind::Unreachable, "the servers answer no request")
                });
            }
        }
    }

    fn answered(&self) {
        *lock(&self.answered) = Some(Moment::now());
    }

    /// Gives turns to those who wait, as many as are free.
    fn pass_on(self: &Arc<Self>) {
        let mut next = Vec::new();
        {
            let mut given = lock(&self.given);
            given.forget(self.longest);
            while given.under_way < UNDER_WAY
                && let Some(waiting) = given.waiting.pop_front()
            {
                if waiting.is_closed() {
                    continue;
                }
                let counted = Arc::new(Counted { begun: Moment::now(), is_over: AtomicBool::new(false) });
                given.under_way += 1;
                given.turns.push_back(Arc::downgrade(&counted));
                next.push((waiting, RequestTurn { turns: Arc::clone(self), counted }));
            }
        }
        // Not under the mutex: a turn that nobody waits for any more is dropped, and passed on.
        for (waiting, turn) in next {
            drop(waiting.send(turn));
        }
    }
}

impl Given {
    /// Ends turns that have lasted for too long.
    fn forget(&mut self, longest: Duration) {
        while let Some(first) = self.turns.front() {
            if let Some(counted) = first.upgrade()
                && !counted.is_over.load(Ordering::Relaxed)
            {
                if !counted.begun.after(longest).has_passed() {
                    return;
                }
                counted.is_over.store(true, Ordering::Relaxed);
                self.under_way -= 1;
            }
            self.turns.pop_front();
        }
    }
}

impl Drop for RequestTurn {
    fn drop(&mut self) {
        {
            let mut given = lock(&self.turns.given);
            if self.counted.is_over.swap(true, Ordering::Relaxed) {
                return;
            }
            given.under_way -= 1;
        }
        self.turns.pass_on();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    async fn take(turns: &Arc<Turns>, wait: Duration) -> Result<RequestTurn> {
        // A test polls hundreds of them without a pause.
        tokio::task::unconstrained(turns.take(Moment::now().after(wait))).await
    }

    #[tokio::test]
    async fn no_more_are_under_way_than_there_are_turns() {
        let turns = Arc::new(Turns::new());
        let short = Duration::from_millis(50);
        let mut taken = Vec::new();
        for _ in 0..UNDER_WAY {
            taken.push(take(&turns, short).now_or_never().expect("it is free").expect("a turn"));
        }
        assert_eq!(take(&turns, short).await.err().expect("none is free").kind(), ErrorKind::Unreachable);
        let waiting = take(&turns, short);
        let (refused, ()) = tokio::join!(waiting, async { turns.answered() });
        assert_eq!(refused.err().expect("none is free").kind(), ErrorKind::Overloaded);
        // In their order, without those who have left.
        let (mut first, mut second) = (Box::pin(take(&turns, LONGEST)), Box::pin(take(&turns, LONGEST)));
        let mut left = Box::pin(take(&turns, LONGEST));
        assert!(left.as_mut().now_or_never().is_none() && first.as_mut().now_or_never().is_none());
        assert!(second.as_mut().now_or_never().is_none());
        drop(left);
        taken.pop();
        let first = first.now_or_never().expect("it is its turn").expect("a turn");
        assert!(second.as_mut().now_or_never().is_none());
        drop(first);
        assert!(second.now_or_never().expect("it is its turn").is_ok());
    }

    /// Neither one that was taken, nor one that was given to somebody who has not noticed it.
    #[tokio::test]
    async fn what_nobody_polls_holds_up_the_others_for_a_while_only() {
        let turns = Arc::new(Turns { longest: Duration::from_millis(200), ..Turns::new() });
        let long = Duration::from_mins(1);
        let mut unpolled = Vec::new();
        for number in 0..UNDER_WAY * 2 {
            let mut waiting = Box::pin(take(&turns, long));
            let taken = waiting.as_mut().now_or_never();
            assert_eq!(taken.is_some(), number < UNDER_WAY);
            unpolled.push((waiting, taken));
        }
        let turn = take(&turns, long).await.expect("a turn");
        assert_eq!(lock(&turns.given).under_way, 1);
        drop(unpolled);
        assert_eq!(lock(&turns.given).under_way, 1, "they did not count any more");
        drop(turn);
        assert_eq!(lock(&turns.given).under_way, 0);
    }
}
