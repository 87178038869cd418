//! The connections that are idle between two batches of requests.
//!
//! SQLite shares the memory of a file among all connections of a process. If that memory or the log is
//! removed, a connection in use notices it with its next statement. An idle connection does not, and a new
//! connection would get the removed memory as long as the old ones are open, so it is refused: one idle
//! connection would lock the whole process out. So when a file cannot be opened, all idle connections of the
//! process are checked, and those whose files are gone are closed. A connection in use is checked after its
//! statement. Only local files are registered here.

use std::sync::{Arc, Mutex, MutexGuard, TryLockError, Weak};

use lockwell_core::Moment;
use lockwell_core::backend::{PerProcess, lock};

use crate::dialect::Dialect;
use crate::dialect::requests::Route;

/// All clients of this process that may have idle connections.
static ALL: PerProcess<Arc<Clients>> = PerProcess::new();

type Clients = Mutex<Vec<Weak<dyn Check>>>;

#[cfg_attr(not(feature = "sqlite-unbundled"), allow(dead_code))]
trait Check: Send + Sync {
    fn close_lost(&self);
}

/// The connections of one client, one for each route.
pub(crate) struct Idle<D: Dialect> {
    dialect: Arc<D>,
    connections: [Mutex<Option<IdleConnection<D>>>; 3],
}

/// A connection that is idle.
pub(crate) struct IdleConnection<D: Dialect> {
    pub(crate) conn: D::Conn,
    /// When the connection was opened.
    pub(crate) since: Moment,
    /// What it is called at the server, if that was asked.
    pub(crate) session: Option<String>,
}

impl<D: Dialect> Idle<D> {
    pub(crate) fn new(dialect: Arc<D>) -> Arc<Self> {
        let new = Arc::new(Self { dialect, connections: Default::default() });
        if !D::IS_REMOTE {
            let all: Arc<dyn Check> = Arc::<Self>::clone(&new);
            let known = ALL.get_or_init(Arc::default);
            let mut known = lock(&known);
            known.retain(|one| one.strong_count() > 0);
            known.push(Arc::downgrade(&all));
        }
        new
    }

    pub(crate) fn on(&self, route: Route) -> MutexGuard<'_, Option<IdleConnection<D>>> {
        lock(&self.connections[route as usize])
    }
}

impl<D: Dialect> Check for Idle<D> {
    fn close_lost(&self) {
        for idle in &self.connections {
            let mut idle = match idle.try_lock() {
                Ok(idle) => idle,
                Err(TryLockError::Poisoned(idle)) => idle.into_inner(),
                // A request takes the connection or returns it at this moment.
                Err(TryLockError::WouldBlock) => continue,
            };
            if idle.as_ref().is_some_and(|idle| self.dialect.intact(&idle.conn).is_err()) {
                drop(idle.take());
            }
        }
    }
}

/// Closes the idle connections of this process whose files were removed or replaced. Their answers would not
/// have been used.
#[cfg_attr(not(feature = "sqlite-unbundled"), allow(dead_code))]
pub(crate) fn close_lost() {
    let all: Vec<_> = {
        let known = ALL.get_or_init(Arc::default);
        lock(&known).iter().filter_map(Weak::upgrade).collect()
    };
    for one in &all {
        one.close_lost();
    }
}
