//! The panic of a backend is reported once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lockwell_core::Locks;

use crate::{alone, odd};

static PANICS: AtomicUsize = AtomicUsize::new(0);

#[test]
fn a_panic_of_the_backend_is_one_panic() {
    alone("panics::a_panic_of_the_backend_is_one_panic", async {
        std::panic::set_hook(Box::new(|_| {
            PANICS.fetch_add(1, Ordering::SeqCst);
        }));
        let locks = Locks::new(Arc::<odd::Odd>::default()).unwrap();
        let panicked = tokio::spawn(locks.lock(odd::PANICS).into_future()).await;
        assert!(panicked.unwrap_err().is_panic());
        // Time for a second one, in a task that goes on with it.
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(PANICS.load(Ordering::SeqCst), 1);
        locks.lock("another").await.unwrap().release().await.unwrap();
    });
}
