//! etcd as a backend of lockwell, written against its public API alone:
//! `etcd://USER:PASSWORD@HOST:PORT,HOST/PREFIX`.
//!
//! Each claim has a lease of its own, whose id is made from the owner, and a key that belongs to the lease,
//! in `PREFIX/NAME/`. The keys are a queue in the order of their create revisions, which are the fencing
//! tokens:
//!
//! * a writer has its turn when no key comes before its own, a reader when no writer's does;
//! * whoever waits watches the one key that it waits for, and nothing else;
//! * to release is to revoke the lease, which deletes the key. A request that arrives later finds no lease,
//!   and fails.

mod connection;
mod keys;
mod lock;

pub use lock::EtcdLock;

/// lockwell's backends and this one.
pub fn registry() -> lockwell::Result<lockwell::Registry> {
    lockwell::Registry::new().with("etcd", |url| async move { EtcdLock::connect(&url).await })
}
