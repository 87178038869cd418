//! Never two holders at a time.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::history::{Violation, check};
use super::stage::{Stage, millis, release, secs, ttl_of};
use super::time::sleep;
use super::workload::{Plan, run};
use lockwell_core::{Locks, Mode, Requirement};

/// A counter that loses updates as soon as two tasks use it at the same time.
pub(super) async fn a_counter_without_synchronisation_loses_nothing(stage: Stage) {
    const TASKS: u64 = 100;
    let clients: [_; 4] = stage.clients().await;
    let name = stage.name("counter");
    let counter = Arc::new(AtomicU64::new(0));
    let inside = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for task in 0..TASKS {
        let locks = clients[usize::try_from(task).unwrap_or(0) % clients.len()].clone();
        let (name, counter, inside) = (name.clone(), Arc::clone(&counter), Arc::clone(&inside));
        tasks.push(tokio::spawn(async move {
            let guard = locks.lock(&name).wait(secs(60)).await.expect("its turn comes");
            let others = inside.fetch_add(1, Ordering::SeqCst);
            assert_eq!(others, 0, "task {task} with token {} is not alone", guard.token());
            let seen = counter.load(Ordering::SeqCst);
            if task % 3 == 0 {
                sleep(std::time::Duration::from_micros(300)).await;
            } else {
                tokio::task::yield_now().await;
            }
            counter.store(seen + 1, Ordering::SeqCst);
            inside.fetch_sub(1, Ordering::SeqCst);
            release(guard).await;
        }));
    }
    for task in tasks {
        task.await.expect("no task fails");
    }
    assert_eq!(counter.load(Ordering::SeqCst), TASKS, "updates were lost");
}

/// All kinds of requests at the same time; the checker checks their history.
pub(super) async fn a_busy_hour_has_a_clean_history(stage: Stage) {
    let clients: [_; 3] = stage.clients().await;
    busy(stage, clients, vec![Mode::Exclusive], false).await;
}

/// The same with two clients that queue in memory and pass the lock on within, and one that does not.
pub(super) async fn a_busy_hour_of_hand_overs_has_a_clean_history(stage: Stage) {
    let [one, two, three] = stage.clients().await;
    let clients = [one.hand_off(10, millis(20)), two.hand_off(3, secs(1)), three];
    busy(stage, clients, vec![Mode::Exclusive], true).await;
}

/// The same with readers among the writers.
pub(super) async fn a_busy_hour_of_readers_and_writers_has_a_clean_history(stage: Stage) {
    let clients: [_; 3] = stage.clients().await;
    busy(stage, clients, vec![Mode::Exclusive, Mode::Shared, Mode::Shared], false).await;
}

/// The same with a semaphore.
pub(super) async fn a_busy_hour_of_permits_has_a_clean_history(stage: Stage) {
    let clients: [_; 3] = stage.clients().await;
    busy(stage, clients, vec![Mode::Permit { limit: NonZeroU32::new(3).expect("not zero") }], false).await;
}

/// The same with mutexes and semaphores of two limits of the same names.
pub(super) async fn a_busy_hour_of_kinds_has_a_clean_history(stage: Stage) {
    let clients: [_; 3] = stage.clients().await;
    let permit = |limit| Mode::Permit { limit: NonZeroU32::new(limit).expect("not zero") };
    busy(stage, clients, vec![permit(2), permit(2), permit(3), permit(3), Mode::Exclusive], false).await;
}

async fn busy(stage: Stage, clients: [Locks; 3], modes: Vec<Mode>, passed_on: bool) {
    let fencing = clients[0].capabilities().promises(Requirement::Fencing);
    let block = clients[0].capabilities().promises(Requirement::TokenBlocks);
    let seed = rand::random();
    let plan = Plan {
        short: ttl_of(&clients[0], 150),
        clients: clients.to_vec(),
        names: (0..3).map(|n| stage.name(n)).collect(),
        modes,
        tasks: 12,
        span: secs(3),
        seed,
    };
    let record = run(plan).await;
    let mut violations = check(&record.history);
    violations.retain(|one| match one {
        Violation::Overlap(..) => true,
        // Without blocks of tokens, those who pass a lock on share one.
        Violation::TokenTwice(..) => fencing && (block || !passed_on),
        Violation::TokenFell(..) => fencing,
    });
    let violations: Vec<_> = violations.iter().map(ToString::to_string).collect();
    assert!(violations.is_empty(), "seed {seed:#x}: {violations:#?}");
    assert!(record.errors.is_empty(), "seed {seed:#x}: errors on a healthy server: {:?}", record.errors);
    let (held, dead) = (record.history.len(), record.dead);
    assert!(record.says_something(), "nothing was put to the test: {held} grants, {dead} dead holders");
}
