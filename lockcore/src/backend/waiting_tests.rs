use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use super::*;
use crate::system::lock;
use crate::{Error, FencingToken, LockName, Mode, Moment, TestClock, Wait};

/// A server that refuses until it is told to grant.
#[derive(Default)]
struct Server {
    free: AtomicBool,
    /// Whether a question has no answer, once the answers below are used up.
    hangs: AtomicBool,
    /// Whether a waiter cannot ask again.
    breaks: AtomicBool,
    notify: Notify,
    said: Mutex<Vec<&'static str>>,
    places: AtomicUsize,
    /// How many heartbeats find the place gone.
    forgets: AtomicUsize,
    /// The answers to the next questions, before all others.
    answers: Mutex<VecDeque<ClaimReply>>,
    /// When one that was refused is to ask again: after a minute, unless this says something else.
    recheck: Option<Duration>,
    /// A notification brings the grant.
    pushes: AtomicBool,
    /// Whether claims were noted to wait.
    is_contended: AtomicBool,
    /// How many subscriptions are confirmed; all of them, unless this says something else.
    subscriptions: Option<AtomicUsize>,
}

impl Server {
    fn say(&self, what: &'static str) {
        lock(&self.said).push(what);
    }

    fn said(&self) -> Vec<&'static str> {
        lock(&self.said).clone()
    }
}

impl Queue for Server {
    type Place = usize;

    async fn ask(&self, claim: &Claim, place: Option<&usize>) -> Result<ClaimReply> {
        self.say(if place.is_some() { "ask again" } else { "ask" });
        if let Some(answer) = lock(&self.answers).pop_front() {
            return Ok(answer);
        }
        if self.hangs.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        if self.breaks.load(Ordering::SeqCst) && place.is_some() {
            return Err(Error::new(ErrorKind::Internal, "it broke"));
        }
        if self.free.load(Ordering::SeqCst) {
            return Ok(ClaimReply::Granted(Grant::new(claim, FencingToken::new(1), claim.began())));
        }
        Ok(ClaimReply::Refused { recheck: self.recheck.unwrap_or(Duration::from_secs(60)) })
    }

    async fn subscribe(&self) {
        let take = |left: &AtomicUsize| {
            left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
        };
        if self.subscriptions.as_ref().is_some_and(|left| take(left).is_err()) {
            std::future::pending::<()>().await;
        }
    }

    fn is_contended(&self, _: &Claim) -> bool {
        self.is_contended.load(Ordering::SeqCst)
    }

    fn note_contended(&self, _: &Claim) {
        self.is_contended.store(true, Ordering::SeqCst);
    }

    async fn enter(&self, _: &Claim) -> Result<usize> {
        self.say("enter");
        Ok(self.places.fetch_add(1, Ordering::SeqCst))
    }

    async fn notified(&self, _: &usize) {
        self.notify.notified().await;
    }

    fn taken(&self, claim: &Claim, _: &usize) -> Option<Grant> {
        let pushes = self.pushes.load(Ordering::SeqCst);
        pushes.then(|| Grant::new(claim, FencingToken::new(2), claim.began()))
    }

    async fn keep(&self, _: &Claim, _: &usize) -> Result<bool> {
        self.say("keep");
        let left = self.forgets.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        Ok(left.is_err())
    }
}

fn claim(wait: Wait) -> Claim {
    let name = LockName::new("a").unwrap();
    Claim::new(name, Mode::Exclusive, Duration::from_secs(10), wait, "test".into())
}

async fn waiting(server: &Arc<Server>, claim: &Claim) -> tokio::task::JoinHandle<Result<Option<Grant>>> {
    let task = tokio::spawn({
        let (server, claim) = (Arc::clone(server), claim.clone());
        async move { wait_for_turn(&*server, &claim).await }
    });
    tokio::time::sleep(Duration::from_millis(20)).await;
    task
}

#[tokio::test]
async fn it_asks_again_as_soon_as_it_has_a_place_and_when_it_is_notified() {
    let (server, claim) = (Arc::<Server>::default(), claim(Wait::Forever));
    let task = waiting(&server, &claim).await;
    assert_eq!(server.said(), ["ask", "enter", "ask again"]);
    assert!(claim.may_be_queued());
    server.free.store(true, Ordering::SeqCst);
    server.notify.notify_one();
    assert!(task.await.unwrap().unwrap().is_some());
}

#[tokio::test]
async fn one_that_does_not_wait_leaves_nothing() {
    let (server, claim) = (Arc::<Server>::default(), claim(Wait::No));
    assert!(wait_for_turn(&*server, &claim).await.unwrap().is_none());
    assert_eq!(server.said(), ["ask"]);
    assert!(!claim.may_be_queued());
}

#[tokio::test]
async fn a_lock_that_was_contended_is_waited_for_from_the_first_request_on() {
    let server = Arc::<Server>::default();
    let free_it = async |task: tokio::task::JoinHandle<Result<Option<Grant>>>| {
        server.free.store(true, Ordering::SeqCst);
        server.notify.notify_one();
        assert!(task.await.unwrap().unwrap().is_some());
        server.free.store(false, Ordering::SeqCst);
        std::mem::take(&mut *lock(&server.said))
    };
    let first = waiting(&server, &claim(Wait::Forever)).await;
    assert_eq!(free_it(first).await, ["ask", "enter", "ask again", "ask again"]);
    let second = claim(Wait::Forever);
    let task = waiting(&server, &second).await;
    assert!(second.may_be_queued());
    assert_eq!(free_it(task).await, ["enter", "ask again", "ask again"]);
    assert!(wait_for_turn(&*server, &claim(Wait::No)).await.unwrap().is_none());
    assert_eq!(server.said(), ["ask"], "one that does not wait takes no place");
}

#[tokio::test]
async fn after_a_cancellation_nothing_is_sent() {
    for round in 0..20 {
        let (server, claim) = (Arc::<Server>::default(), claim(Wait::Forever));
        let task = waiting(&server, &claim).await;
        // Both in the same moment: whichever is seen first.
        if round % 2 == 0 {
            server.notify.notify_one();
        }
        claim.cancel();
        server.notify.notify_one();
        assert!(task.await.unwrap().unwrap().is_none());
        assert_eq!(server.said(), ["ask", "enter", "ask again"]);
    }
}

#[tokio::test]
async fn a_place_that_was_forgotten_is_taken_again() {
    let (server, claim) = (Arc::<Server>::default(), claim(Wait::Forever));
    server.forgets.store(1, Ordering::SeqCst);
    let task = waiting(&server, &claim).await;
    tokio::time::sleep(KEEP_EVERY).await;
    server.notify.notify_one();
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(server.said(), ["ask", "enter", "ask again", "keep", "enter", "ask again"]);
    claim.cancel();
    assert!(task.await.unwrap().unwrap().is_none());
}

#[tokio::test]
async fn after_another_failure_the_claim_may_still_be_queued() {
    let (server, claim) = (Arc::<Server>::default(), claim(Wait::Forever));
    server.breaks.store(true, Ordering::SeqCst);
    let error = wait_for_turn(&*server, &claim).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal);
    assert_eq!(server.said(), ["ask", "enter", "ask again"], "the release that follows leaves the queue");
    assert!(claim.may_be_queued());
}

#[tokio::test]
async fn a_timer_serves_where_a_notification_is_lost() {
    let (recheck, test) = (KEEP_EVERY / 2, TestClock::new());
    let server = Arc::new(Server { recheck: Some(recheck), ..Server::default() });
    let claim = claim(Wait::Forever).with_clock(test.clock());
    let task = waiting(&server, &claim).await;
    server.free.store(true, Ordering::SeqCst);
    assert_eq!(server.said(), ["ask", "enter", "ask again"], "not before its time");
    test.advance(recheck);
    assert!(task.await.unwrap().unwrap().is_some());
    assert_eq!(server.said(), ["ask", "enter", "ask again", "ask again"]);
}

#[tokio::test]
async fn a_notification_may_bring_the_grant() {
    let (server, claim) = (Arc::<Server>::default(), claim(Wait::Forever));
    server.pushes.store(true, Ordering::SeqCst);
    let task = waiting(&server, &claim).await;
    server.notify.notify_one();
    assert_eq!(task.await.unwrap().unwrap().map(|grant| grant.token()), Some(FencingToken::new(2)));
    assert_eq!(server.said(), ["ask", "enter", "ask again"], "nothing is asked");
}

#[tokio::test]
async fn votes_that_were_split_are_tried_again_after_the_pause() {
    let (server, claim) = (Arc::<Server>::default(), claim(Wait::Forever));
    let pause = Duration::from_millis(60);
    lock(&server.answers).extend([ClaimReply::Undecided { pause }, ClaimReply::Undecided { pause }]);
    server.free.store(true, Ordering::SeqCst);
    let began = Moment::now();
    assert!(wait_for_turn(&*server, &claim).await.unwrap().is_some());
    assert!(Moment::now().since(began) >= pause * 2);
    assert_eq!(server.said(), ["ask", "ask", "ask"], "without a place");
}

#[tokio::test]
async fn servers_that_cannot_decide_are_the_answer_when_the_wait_ends() {
    let (server, wait) = (Arc::<Server>::default(), Duration::from_millis(50));
    let unavailable = |pause| {
        let error = Error::new(ErrorKind::Unreachable, "too few nodes");
        ClaimReply::Unavailable { error, pause }
    };
    // The wait ends within the pause.
    lock(&server.answers).extend([unavailable(Duration::from_secs(60))]);
    let began = Moment::now();
    let error = wait_for_turn(&*server, &claim(Wait::Until(began.after(wait)))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(Moment::now().since(began) >= wait, "it waits to its end");
    // The wait ends while they are asked again.
    lock(&server.answers).extend([unavailable(Duration::ZERO)]);
    server.hangs.store(true, Ordering::SeqCst);
    let end = Wait::Until(Moment::now().after(wait));
    let error = wait_for_turn(&*server, &claim(end)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    server.hangs.store(false, Ordering::SeqCst);
    // They answer again before that.
    lock(&server.answers).extend([unavailable(Duration::ZERO)]);
    server.free.store(true, Ordering::SeqCst);
    let late = Wait::Until(Moment::now().after(Duration::from_secs(60)));
    assert!(wait_for_turn(&*server, &claim(late)).await.unwrap().is_some());
}

#[tokio::test]
async fn a_wait_ends_at_its_end_and_not_before() {
    let (server, wait) = (Arc::<Server>::default(), Duration::from_millis(150));
    let began = Moment::now();
    let task = waiting(&server, &claim(Wait::Until(began.after(wait)))).await;
    assert!(task.await.unwrap().unwrap().is_none());
    assert!(Moment::now().since(began) >= wait);
    assert_eq!(server.said(), ["ask", "enter", "ask again"]);
}

#[tokio::test]
async fn a_heartbeat_is_sent_when_it_is_due_and_not_with_every_notification() {
    let (server, claim) = (Arc::<Server>::default(), claim(Wait::Forever));
    let task = waiting(&server, &claim).await;
    server.notify.notify_one();
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(server.said(), ["ask", "enter", "ask again", "ask again"]);
    tokio::time::sleep(KEEP_EVERY).await;
    server.notify.notify_one();
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(server.said()[4..], ["keep", "ask again"]);
    server.notify.notify_one();
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(server.said()[6..], ["ask again"], "the next one is not due yet");
    claim.cancel();
    assert!(task.await.unwrap().unwrap().is_none());
}

#[tokio::test]
async fn a_wait_that_ends_while_it_subscribes_says_what_the_server_said() {
    let (subscriptions, is_contended) = (Some(AtomicUsize::new(1)), AtomicBool::new(true));
    let mut server = Server { is_contended, subscriptions, ..Server::default() };
    let error = Error::new(ErrorKind::Unreachable, "two of three nodes are away");
    server.answers = Mutex::new([ClaimReply::Unavailable { error, pause: Duration::ZERO }].into());
    let clock = TestClock::new();
    let claim =
        claim(Wait::Until(clock.clock().now().after(Duration::from_secs(5)))).with_clock(clock.clock());
    let ended = async {
        while server.said().len() < 2 {
            tokio::task::yield_now().await;
        }
        clock.advance(Duration::from_secs(60));
    };
    let (answer, ()) = tokio::join!(wait_for_turn(&server, &claim), ended);
    assert_eq!(answer.expect_err("nobody knows who holds it").message(), "two of three nodes are away");
    assert_eq!(server.said(), ["enter", "ask again"]);
}
