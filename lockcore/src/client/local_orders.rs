//! The local queue in every order of what can happen to it, on the memory backend.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tokio::task::{JoinHandle, yield_now};

use crate::{ErrorKind, FencingToken, LockGuard, Locks, MemoryLock, Result};

const LONG: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
enum Step {
    /// A task asks for the lock, with a lease of this number of seconds; the flags: without waiting, or with
    /// a wait of zero.
    Ask(u64),
    TryNow,
    Hasty,
    /// The request of a task is dropped.
    Abort(prop::sample::Index),
    Release,
    DropGuard,
    /// A release that is dropped after its first poll.
    DropRelease,
    /// Another process asks for the lock.
    Other,
    /// The tasks run for this number of rounds.
    Run(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (10..12_u64).prop_map(Step::Ask),
        1 => Just(Step::TryNow),
        1 => Just(Step::Hasty),
        3 => any::<prop::sample::Index>().prop_map(Step::Abort),
        2 => Just(Step::Release),
        3 => Just(Step::DropGuard),
        1 => Just(Step::DropRelease),
        1 => Just(Step::Other),
        6 => (1..4_u8).prop_map(Step::Run),
    ]
}

type Asking = JoinHandle<Result<Option<LockGuard>>>;

struct World {
    /// A client with a local queue, and one without, as another process would be.
    clients: [Locks; 2],
    asking: Vec<Asking>,
    held: Option<LockGuard>,
    highest: Option<FencingToken>,
}

impl World {
    fn ask(&mut self, client: usize, ttl: u64, wait: Duration) {
        let request = self.clients[client].lock("a").ttl(Duration::from_secs(ttl)).wait(wait);
        self.asking.push(tokio::spawn(async move { request.await.map(Some) }));
    }

    async fn step(&mut self, step: Step) {
        match step {
            Step::Ask(ttl) => self.ask(0, ttl, LONG),
            Step::Hasty => self.ask(0, 10, Duration::ZERO),
            Step::Other => self.ask(1, 10, LONG),
            Step::TryNow => {
                let request = self.clients[0].lock("a");
                self.asking.push(tokio::spawn(request.try_now()));
            }
            Step::Abort(which) => {
                if !self.asking.is_empty() {
                    let which = which.index(self.asking.len());
                    // Its task may have the lock already, and is then dropped with it.
                    self.asking.swap_remove(which).abort();
                }
            }
            Step::Release => {
                if let Some(guard) = self.held.take() {
                    guard.release().await.expect("it is held");
                }
            }
            Step::DropGuard => drop(self.held.take()),
            Step::DropRelease => {
                if let Some(guard) = self.held.take() {
                    drop(tokio::time::timeout(Duration::ZERO, guard.release()).await);
                }
            }
            Step::Run(rounds) => {
                for _ in 0..rounds {
                    yield_now().await;
                }
            }
        }
        self.collect().await;
    }

    /// Collects the guards, and checks that there is one at a time, with rising tokens.
    async fn collect(&mut self) {
        let mut at = 0;
        while at < self.asking.len() {
            if !self.asking[at].is_finished() {
                at += 1;
                continue;
            }
            let guard = match self.asking.swap_remove(at).await.expect("no panic") {
                Ok(Some(guard)) => guard,
                Ok(None) => continue,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error:#}");
                    continue;
                }
            };
            assert!(guard.is_held());
            assert!(self.held.is_none(), "two hold the lock: {:?} and {guard:?}", self.held);
            assert!(Some(guard.token()) > self.highest, "{guard:?} after {:?}", self.highest);
            self.highest = Some(guard.token());
            self.held = Some(guard);
        }
    }

    /// All requests that are left get the lock, and nothing is left behind.
    async fn end(mut self) {
        tokio::time::timeout(LONG / 2, async {
            while !self.asking.is_empty() || self.held.is_some() {
                self.step(Step::Release).await;
                tokio::task::yield_now().await;
            }
            // What was dropped may still be on its way.
            let local = self.clients[0].lock("a").choices.local.expect("a local queue");
            loop {
                let status = self.clients[1].inspect("a").await.expect("an answer");
                if !status.is_held() && status.waiters == 0 && local.is_idle() {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await
        .expect("nobody waits for ever, and nothing stays");
    }
}

proptest! {
    #[test]
    fn no_order_of_steps_breaks_the_queue(
        steps in prop::collection::vec(step(), 0..50),
        hand_off in prop::option::of(0..4_u32),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let backend = Arc::new(MemoryLock::new());
            let one = Locks::new(Arc::clone(&backend) as _).unwrap();
            let one = match hand_off {
                Some(max) => one.hand_off(max, LONG),
                None => one,
            };
            let clients = [one, Locks::new(backend).unwrap().server_order()];
            let mut world = World { clients, asking: Vec::new(), held: None, highest: None };
            for step in steps {
                world.step(step).await;
            }
            world.end().await;
        });
    }
}
