//! When a client deletes places of waiters that are gone. See [`sweep`](crate::dialect::sweep).

use std::sync::Arc;
use std::time::Duration;

use lockwell_core::Moment;
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::client::asker::Asker;
use crate::dialect::Dialect;
use crate::dialect::requests::Route;
use crate::dialect::sweep::Swept;

/// The longest pause from a new subscription to a look.
const SOON: Duration = Duration::from_secs(1);

/// Deletes places of waiters that are gone, of other clients and of this one, over the connection for
/// requests. `resubscribed` is notified after each subscription of this client but the first.
pub(super) async fn sweep_while_waiting<D: Dialect>(asker: &Asker<D>, resubscribed: &Notify) {
    let (mut look, mut own_from) = (Ok(Swept::default()), Moment::now().after(D::OWN_PLACES_EVERY));
    loop {
        tokio::select! {
            () = sleep(Swept::pause(&look)) => (),
            // The server may have been started from a backup.
            () = resubscribed.notified() => {
                own_from = Moment::now();
                sleep(SOON.mul_f64(rand::random::<f64>())).await;
            }
        }
        if asker.waiters.is_empty() {
            continue;
        }
        let looks_for_own = own_from.has_passed();
        let places = Arc::clone(&asker.places);
        let looking = asker.run(Route::Main, move |dialect, conn| {
            let places = Arc::clone(&places);
            Box::pin(async move {
                if looks_for_own {
                    // Before the look: a waiter that comes meanwhile has a higher number.
                    let known = places.now();
                    dialect.forget_stale(conn, &known).await?;
                }
                dialect.sweep(conn).await
            })
        });
        look = looking.await;
        match &look {
            Ok(_) if looks_for_own => own_from = Moment::now().after(D::OWN_PLACES_EVERY),
            Ok(_) => (),
            Err(error) => {
                let error = format!("{error:#}");
                tracing::debug!(error, "places of waiters that are gone are not deleted");
            }
        }
    }
}
