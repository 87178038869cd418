//! What a subscriber sees of a wait on a real server.

#![cfg(feature = "postgres")]

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use testbed::{Durability, Options, Postgres, if_installed};
use tracing::Subscriber;
use tracing::instrument::WithSubscriber as _;
use tracing::span::{Id, Record};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt as _};

/// What is recorded on spans.
#[derive(Clone, Default)]
struct Recorded(Arc<Mutex<String>>);

impl<S: Subscriber> Layer<S> for Recorded {
    fn on_record(&self, _: &Id, values: &Record<'_>, _: Context<'_, S>) {
        writeln!(self.0.lock().expect("no panic"), "{values:?}").expect("a string has room");
    }
}

#[tokio::test]
async fn the_span_of_a_wait_names_the_holder() {
    let options = Options::new().durability(Durability::OsCache);
    let Some(server) = if_installed(Postgres::start_with(&options).await) else { return };
    let traceparent = format!("00-{:032x}-{:016x}-01", 7, 8);
    let here = lockwell::connect(server.url()).await.expect("a client");
    let there = lockwell::connect(server.url()).await.expect("a client");
    let held = here.lock("a").label("job 7").traceparent(&traceparent).await.expect("a free lock");
    let recorded = Recorded::default();
    let subscriber = tracing_subscriber::registry().with(recorded.clone());
    let waiting = tokio::spawn(there.lock("a").into_future().with_subscriber(subscriber));
    let told = async {
        while !recorded.0.lock().expect("no panic").contains(&traceparent) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), told).await.expect("it is recorded");
    assert!(recorded.0.lock().expect("no panic").contains("job 7"));
    held.release().await.expect("held");
    waiting.await.expect("no panic").expect("its turn").release().await.expect("held");
}
