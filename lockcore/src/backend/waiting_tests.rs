use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use super::*;
use crate::system::lock;
use crate::{Error, FencingToken, LockName, Mode, Wait};

/// A server that refuses until it is told to grant.
#[derive(Default)]
struct Server {
    free: AtomicBool,
    clashes: AtomicBool,
    notify: Notify,
    said: Mutex<Vec<&'static str>>,
    places: AtomicUsize,
    /// How many signs of life find the place gone.
    forgets: AtomicUsize,
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

    async fn ask(&self, claim: &Claim, place: Option<&usize>) -> Result<Answer> {
        self.say(if place.is_some() { "ask again" } else { "ask" });
        if self.clashes.load(Ordering::SeqCst) && place.is_some() {
            return Err(Error::new(ErrorKind::KindClash, "a semaphore by now"));
        }
        if self.free.load(Ordering::SeqCst) {
            return Ok(Answer::Granted(Grant::new(claim, FencingToken::new(1), claim.began())));
        }
        Ok(Answer::Refused { recheck: Duration::from_mins(1) })
    }

    async fn enter(&self, _: &Claim) -> Result<usize> {
        self.say("enter");
        Ok(self.places.fetch_add(1, Ordering::SeqCst))
    }

    async fn notified(&self, _: &usize) {
        self.notify.notified().await;
    }

    async fn keep(&self, _: &Claim, _: &usize) -> Result<bool> {
        self.say("keep");
        let left = self.forgets.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        Ok(left.is_err())
    }

    async fn leave(&self, _: &Claim) -> Result<()> {
        self.say("leave");
        Ok(())
    }
}

fn claim(wait: Wait) -> Claim {
    let name = LockName::new("a").unwrap();
    Claim::new(name, Mode::Exclusive, Duration::from_secs(10), wait, "test".into())
}

async fn waiting(server: &Arc<Server>, claim: &Claim) -> tokio::task::JoinHandle<Result<Option<Grant>>> {
    let task = tokio::spawn({
        let (server, claim) = (Arc::clone(server), claim.clone());
        async move { wait_for_turn(&*server, &claim, None).await }
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
    assert!(wait_for_turn(&*server, &claim, None).await.unwrap().is_none());
    assert_eq!(server.said(), ["ask"]);
    assert!(!claim.may_be_queued());
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
async fn a_clash_leaves_the_queue_first() {
    let (server, claim) = (Arc::<Server>::default(), claim(Wait::Forever));
    server.clashes.store(true, Ordering::SeqCst);
    let error = wait_for_turn(&*server, &claim, None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::KindClash);
    assert_eq!(server.said(), ["ask", "enter", "ask again", "leave"]);
    assert!(!claim.may_be_queued());
}
