//! Sets `TCP_NODELAY` on the connections of sessions.
//!
//! An acquire sends two requests together: the creation of its node, and the list of the queue. The client
//! crate writes each of them separately and does not set `TCP_NODELAY`. So the kernel can hold the list back
//! until the server has acknowledged the creation, which it does with its answer, and the acquire takes two
//! round trips instead of one. With backend-zk/zookeeper-client-nodelay.patch the crate would set the option
//! itself.

use std::sync::Weak;

use lockwell_core::backend::{run_blocking, set_nodelay};
use zookeeper_client::{SessionState, StateWatcher};

use crate::session::Session;
use crate::session::places::addresses;

/// Sets the option on each connection that the session gets.
pub(crate) async fn set_on_connections(session: Weak<Session>, mut states: StateWatcher) {
    let mut state = states.state();
    loop {
        if state.is_terminated() {
            return;
        }
        if state == SessionState::SyncConnected {
            let Some(options) = session.upgrade().map(|session| session.options.clone()) else { return };
            let servers = addresses(&options.hosts).await;
            let set = move || set_nodelay(|peer| servers.contains(peer));
            match run_blocking("lockwell-nodelay", set).await {
                Ok(Ok(sockets)) => {
                    tracing::trace!(lockwell.sockets = ?sockets, "sockets that have TCP_NODELAY");
                }
                Ok(Err(error)) => tracing::debug!(%error, "TCP_NODELAY cannot be set"),
                Err(error) => tracing::debug!(%error, "TCP_NODELAY is not set"),
            }
        }
        state = states.changed().await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use lockwell_core::backend::{can_set_nodelay, look_for_nodelay};
    use lockwell_core::{Locks, Moment};

    use crate::ZkLock;

    #[tokio::test]
    async fn sessions_get_it() {
        if !can_set_nodelay() || !testbed::is_installed(testbed::ZooKeeper::installed()) {
            return;
        }
        let server = testbed::ZooKeeper::start_with(&testbed::Options::new()).await.unwrap();
        let lock = ZkLock::connect(&server.url().parse().unwrap()).await.unwrap();
        let locks = Locks::new(Arc::new(lock) as Arc<_>).unwrap();
        let _held = locks.lock("held").await.unwrap();
        let end = Moment::now().after(Duration::from_secs(20));
        loop {
            let found = look_for_nodelay(|peer| *peer == server.addr()).unwrap();
            // Those that ask for limits only are closed soon.
            if found.sockets > 0 && found.lacking == 0 {
                return;
            }
            assert!(!end.has_passed(), "{found:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
