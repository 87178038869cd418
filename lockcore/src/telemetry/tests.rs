//! The spans, events and, with the feature, metrics of a lock from its acquire to its release.

use crate::telemetry::LOOKS;
use std::collections::HashMap;
use std::fmt::{Debug, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tracing::field::{Field, Visit};
use tracing::instrument::WithSubscriber;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::system::lock;
use crate::testing::TestServer;
use crate::{ErrorKind, LockEvent, Locks, Loss, Operation};

/// A subscriber that writes spans down, closed ones in the order of their ends.
#[derive(Clone, Default)]
struct Spans(Arc<Inner>);

#[derive(Default)]
struct Inner {
    last: AtomicU64,
    open: Mutex<HashMap<u64, (String, usize)>>,
    closed: Mutex<Vec<String>>,
}

struct Fields<'a>(&'a mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {field}={value:?}").expect("a string has room");
    }
}

impl Subscriber for Spans {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && metadata.target() == "lockwell"
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let id = self.0.last.fetch_add(1, Ordering::SeqCst) + 1;
        let mut text = attributes.metadata().name().to_owned();
        attributes.record(&mut Fields(&mut text));
        lock(&self.0.open).insert(id, (text, 1));
        Id::from_u64(id)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        if let Some((text, _)) = lock(&self.0.open).get_mut(&span.into_u64()) {
            values.record(&mut Fields(text));
        }
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}

    fn clone_span(&self, id: &Id) -> Id {
        if let Some((_, handles)) = lock(&self.0.open).get_mut(&id.into_u64()) {
            *handles += 1;
        }
        id.clone()
    }

    fn try_close(&self, id: Id) -> bool {
        let mut open = lock(&self.0.open);
        let Some((_, handles)) = open.get_mut(&id.into_u64()) else { return false };
        *handles -= 1;
        if *handles > 0 {
            return false;
        }
        let closed = open.remove(&id.into_u64());
        lock(&self.0.closed).extend(closed.map(|(text, _)| text));
        true
    }
}

#[tokio::test]
async fn a_lock_has_spans_from_its_acquire_to_its_release() {
    let spans = Spans::default();
    let traced = async {
        let locks = Locks::in_memory();
        let a = || locks.lock("a").class("spans");
        let first = a().await.unwrap();
        let token = first.token();
        assert!(a().try_now().await.unwrap().is_none());
        let waiting = a().into_future();
        let (second, ()) = tokio::join!(waiting, async {
            tokio::task::yield_now().await;
            first.release().await.unwrap();
        });
        let second = second.unwrap();
        let next = second.token();
        // The release of a guard that is dropped has its span, too.
        drop(second);
        locks.close().await.unwrap();
        (token, next)
    };
    let (token, next) = traced.with_subscriber(spans.clone()).await;
    let closed = lock(&spans.0.closed).clone();
    let span = |name: &str, rest: &str| {
        format!(
            "{name} lockwell.backend=\"memory\" lockwell.name=a lockwell.class=\"spans\" lockwell.mode=\"exclusive\" {rest}"
        )
    };
    assert_eq!(
        closed,
        [
            span("acquire", &format!("lockwell.outcome=\"granted\" lockwell.token={token}")),
            span("acquire", "lockwell.outcome=\"held\""),
            span("hold", &format!("lockwell.token={token} lockwell.outcome=\"released\"")),
            span("release", &format!("lockwell.token={token} lockwell.outcome=\"released\"")),
            span("wait", &format!("lockwell.outcome=\"granted\" lockwell.token={next}")),
            span("acquire", &format!("lockwell.outcome=\"granted\" lockwell.token={next}")),
            span("hold", &format!("lockwell.token={next} lockwell.outcome=\"released\"")),
            span("release", &format!("lockwell.token={next} lockwell.outcome=\"released\"")),
        ],
    );
    assert!(lock(&spans.0.open).is_empty(), "every span has an end");
}

#[tokio::test]
async fn the_stream_tells_the_life_of_a_lock_in_order() {
    let server = TestServer::new();
    let locks = server.locks().unwrap();
    let mut events = locks.events();
    let guard = locks.read("a").await.unwrap();
    let (name, mode, token) = (guard.name().clone(), guard.mode(), guard.token());
    assert_eq!(events.next().await, Some(LockEvent::Granted { name: name.clone(), mode, token }));

    let waiting = tokio::spawn(locks.write("a").into_future());
    let waits = events.next().await.expect("an event");
    assert!(matches!(&waits, LockEvent::Waiting { name: of, mode: as_ } if *of == name && *as_ != mode));
    waiting.abort();
    drop(waiting.await);
    // It leaves the queue in the background. Otherwise the lock would be granted to it below.
    while locks.inspect("a").await.unwrap().waiters > 0 {
        tokio::task::yield_now().await;
    }

    // A renewal fails, the next succeeds.
    server.fail_times(Operation::Renew, ErrorKind::Unreachable, 1);
    server.advance(Duration::from_secs(4));
    assert_eq!(events.next().await, Some(LockEvent::Suspect { name: name.clone(), token }));
    server.advance(Duration::from_secs(1));
    assert_eq!(events.next().await, Some(LockEvent::Recovered { name: name.clone(), token }));

    server.lose("a").await.unwrap();
    assert_eq!(events.next().await, Some(LockEvent::Lost { name, token, loss: Loss::Taken }));
    drop(guard);
    drop(locks.lock("b").await.unwrap());
    let after = events.next().await.expect("an event");
    assert!(matches!(after, LockEvent::Granted { .. }), "a lost lock is not released as well: {after:?}");
    assert!(matches!(events.next().await, Some(LockEvent::Released { .. })));
    locks.clone().close().await.unwrap();
    assert_eq!(events.next().await, None, "the stream ends with the client");
    assert_eq!(locks.events().next().await, None);
}

#[tokio::test]
async fn a_slow_reader_is_told_how_many_it_missed() {
    let locks = Locks::in_memory();
    let mut events = locks.events();
    for _ in 0..1000 {
        locks.lock("a").await.unwrap().release().await.unwrap();
    }
    assert_eq!(events.next().await, Some(LockEvent::Missed(2000 - 1024)));
    assert!(matches!(events.next().await, Some(LockEvent::Granted { .. })));
}

#[tokio::test]
async fn a_stream_ends_when_its_client_is_gone() {
    let locks = Locks::in_memory();
    let mut events = locks.events();
    drop(locks);
    assert_eq!(events.next().await, None);
}

fn traceparent() -> String {
    format!("00-{:032x}-{:016x}-01", 7, 8)
}

/// What the open span of a wait has in it, once it has this.
async fn open_wait(spans: &Spans, part: &str) -> String {
    let found =
        || lock(&spans.0.open).values().map(|(text, _)| text.clone()).find(|text| text.contains(part));
    let wait = async {
        loop {
            match found() {
                Some(text) => return text,
                None => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), wait).await.expect("the span of the wait has it")
}

#[tokio::test]
async fn the_span_of_a_long_wait_names_the_holder() {
    let spans = Spans::default();
    let traced = async {
        let locks = Locks::in_memory();
        let held = locks.lock("a").label("job 7").traceparent(traceparent()).await.unwrap();
        let behind = |_| tokio::spawn(locks.lock("a").into_future().with_current_subscriber());
        let waiting: Vec<_> = (0..3).map(behind).collect();
        let wait = open_wait(&spans, "lockwell.holder.").await;
        let told = format!("lockwell.holder.label=\"job 7\" lockwell.holder.traceparent={}", traceparent());
        assert!(wait.starts_with("wait ") && wait.ends_with(&told), "{wait}");
        let named = lock(&spans.0.open).values().filter(|(text, _)| text.contains(&told)).count();
        assert_eq!(named, 1, "the others wait in their process");
        held.release().await.unwrap();
        for waiting in waiting {
            waiting.await.unwrap().unwrap().release().await.unwrap();
        }
        locks.close().await.unwrap();
    };
    traced.with_subscriber(spans.clone()).await;
    assert!(lock(&spans.0.open).is_empty(), "every span has an end");
}

/// The tasks of this runtime do what they can do.
async fn the_others_run() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// A wait of ten seconds, which `traced` records or not. Whether the server was asked who holds the lock.
async fn looks(server: &TestServer, traced: Option<&Spans>) -> bool {
    let [locks, other] = [(); 2].map(|()| server.locks().unwrap());
    let held = other.lock("a").ttl(Duration::from_secs(60)).await.unwrap();
    let waiting = locks.lock("a").into_future();
    let waiting = match traced {
        None => tokio::spawn(waiting),
        Some(spans) => tokio::spawn(waiting.with_subscriber(spans.clone())),
    };
    while locks.inspect("a").await.unwrap().waiters == 0 {
        tokio::task::yield_now().await;
    }
    // The next look fails, whoever it is that looks.
    server.fail_times(Operation::Inspect, ErrorKind::Unreachable, 1);
    for _ in 0..10 {
        server.advance(Duration::from_secs(1));
        the_others_run().await;
    }
    let looked = locks.inspect("a").await.is_ok();
    held.release().await.unwrap();
    waiting.await.unwrap().expect("a failure is no concern of the wait").release().await.unwrap();
    looked
}

#[tokio::test]
async fn who_holds_a_lock_is_asked_once_and_only_for_a_span() {
    let server = TestServer::new();
    assert!(!looks(&server, None).await);
    let spans = Spans::default();
    assert!(looks(&server, Some(&spans)).await);
    // Had it asked again, it would have learned of the holder.
    let closed = lock(&spans.0.closed).join("\n");
    assert!(closed.contains("wait ") && !closed.contains("holder"), "{closed}");
}

#[tokio::test]
async fn a_look_at_the_holder_without_an_answer_delays_nothing() {
    let (server, spans) = (TestServer::new(), Spans::default());
    let traced = async {
        let [locks, other] = [(); 2].map(|()| server.locks().unwrap());
        let held = other.lock("a").await.unwrap();
        let waiting = tokio::spawn(locks.lock("a").into_future().with_current_subscriber());
        while locks.inspect("a").await.unwrap().waiters == 0 {
            tokio::task::yield_now().await;
        }
        server.delay(Operation::Inspect, Duration::MAX);
        server.fail_times(Operation::Inspect, ErrorKind::Unreachable, 1);
        server.advance(Duration::from_secs(2));
        the_others_run().await;
        held.release().await.unwrap();
        let next = tokio::time::timeout(Duration::from_secs(30), waiting).await;
        next.expect("no delay").unwrap().unwrap().release().await.unwrap();
        server.delay(Operation::Inspect, Duration::ZERO);
        assert!(locks.inspect("a").await.is_ok(), "the failure was for the look");
        locks.close().await.unwrap();
        other.close().await.unwrap();
    };
    traced.with_subscriber(spans.clone()).await;
    assert!(lock(&spans.0.open).is_empty(), "every span has an end");
}

#[tokio::test]
async fn few_of_many_claims_look_at_a_time() {
    let (server, spans) = (TestServer::new(), Spans::default());
    let traced = async {
        let [locks, other] = [(); 2].map(|()| server.locks().unwrap());
        let name = |n: usize| format!("a{n}");
        for n in 0..=LOOKS + 1 {
            std::mem::forget(other.lock(name(n)).ttl(Duration::from_secs(60)).await.unwrap());
            tokio::spawn(locks.lock(name(n)).into_future().with_current_subscriber());
            while locks.inspect(name(n)).await.unwrap().waiters == 0 {
                tokio::task::yield_now().await;
            }
        }
        server.delay(Operation::Inspect, Duration::MAX);
        server.fail_times(Operation::Inspect, ErrorKind::Unreachable, u32::try_from(LOOKS).unwrap() + 1);
        for _ in 0..5 {
            server.advance(Duration::from_secs(1));
            the_others_run().await;
        }
        server.delay(Operation::Inspect, Duration::ZERO);
        assert!(locks.inspect("a0").await.is_err(), "one failure is left");
        assert!(locks.inspect("a0").await.is_ok(), "and no more");
    };
    traced.with_subscriber(spans.clone()).await;
}

#[tokio::test]
async fn a_claim_does_not_wait_for_itself() {
    let (server, spans) = (TestServer::new(), Spans::default());
    let traced = async {
        let [locks, other] = [(); 2].map(|()| server.locks().unwrap());
        let request = |locks: &Locks| locks.lock("a").label("job 7").traceparent(traceparent());
        let held = request(&other).ttl(Duration::from_secs(60)).await.unwrap();
        let waiting = tokio::spawn(request(&locks).into_future().with_current_subscriber());
        while locks.inspect("a").await.unwrap().waiters == 0 {
            tokio::task::yield_now().await;
        }
        for _ in 0..3 {
            server.advance(Duration::from_secs(1));
            the_others_run().await;
        }
        held.release().await.unwrap();
        waiting.await.unwrap().unwrap().release().await.unwrap();
    };
    traced.with_subscriber(spans.clone()).await;
    let closed = lock(&spans.0.closed).join("\n");
    assert!(closed.contains("wait ") && !closed.contains("holder"), "{closed}");
}
