//! Five customers, two hair dryers: once with a semaphore, once with mutexes.
//!
//! The semaphore says how many may dry at a time, and nobody cares which dryer it is. With a mutex for each
//! dryer, a customer has to choose one first, and may wait for it while the other is free.
//!
//! `cargo run --example hairdressers`, or `--features redis -- redis://127.0.0.1` and any other address

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lockwell::{ErrorKind, LockGuard, Locks, Requirement, Result};

const DRYERS: u32 = 2;

/// Who is drying, and the most who ever did at a time.
#[derive(Default)]
struct Salon {
    drying: AtomicUsize,
    most: AtomicUsize,
}

impl Salon {
    async fn dry(&self, customer: usize, guard: LockGuard) -> Result<()> {
        let drying = self.drying.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(drying, Ordering::SeqCst);
        println!("  customer {customer} dries under {:?}; {drying} dry now", guard.name().as_str());
        // Customer 0 has long hair.
        tokio::time::sleep(Duration::from_millis(if customer == 0 { 300 } else { 60 })).await;
        self.drying.fetch_sub(1, Ordering::SeqCst);
        guard.release().await
    }
}

async fn five_customers<F>(what: &str, dryer: impl Fn(usize) -> F) -> Result<()>
where
    F: Future<Output = Result<LockGuard>> + Send + 'static,
{
    println!("{what}");
    let (salon, began) = (Arc::new(Salon::default()), Instant::now());
    let mut customers = Vec::new();
    for customer in 0..5 {
        let (salon, dryer) = (Arc::clone(&salon), dryer(customer));
        customers.push(tokio::spawn(async move { salon.dry(customer, dryer.await?).await }));
    }
    for customer in customers {
        customer.await.expect("no customer panics")?;
    }
    let most = salon.most.load(Ordering::SeqCst);
    println!("  all are dry after {:?}; at most {most} dried at a time", began.elapsed());
    assert!(most <= 2, "there are two dryers");
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory://".to_owned());
    let locks: Locks = lockwell::connect(url).await?;

    if locks.capabilities().promises(Requirement::Permits) {
        five_customers("a semaphore with two permits:", |_| locks.permit("dryers", DRYERS).into_future())
            .await?;

        // A claim with another limit waits until all permits are back. Without a wait it is an error.
        let permit = locks.permit("dryers", DRYERS).await?;
        match locks.permit("dryers", 3).try_now().await {
            Err(error) if error.kind() == ErrorKind::KindClash => println!("  {error}"),
            other => println!("  this should have been refused: {other:?}"),
        }
        permit.release().await?;
    } else {
        println!("{} has no semaphores", locks.capabilities().backend());
    }

    five_customers("a mutex for each dryer:", |customer| {
        locks.lock(format!("dryer/{}", customer % 2)).into_future()
    })
    .await
}
