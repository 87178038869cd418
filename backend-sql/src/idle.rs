//! The connections that are idle between two batches of requests.
//!
//! SQLite shares the memory of a file among all connections of a process. If that memory or the log is removed, a
//! connection in use notices it with its next statement. An idle one does not, and a new connection gets the removed memory as
//! long as the old ones are open, so it is refused: the idle one would keep everybody of the process out, for ever. So
//! whoever cannot open a file asks all idle connections of the process to be checked, and those that are lost are closed.
//! One that is in use is checked behind its statement. Only local files are registered here.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};

use lockcore::Moment;

use crate::dialect::Dialect;
use crate::requests::Route;

/// All that may be idle in this process.
static ALL: Mutex<Vec<Weak<dyn Check>>> = Mutex::new(Vec::new());

#[cfg_attr(not(feature = "sqlite"), allow(dead_code))]
trait Check: Send + Sync {
    fn close_lost(&self);
}

/// The connections of one client, one for each route.
pub(crate) struct Idle<D: Dialect> {
    dialect: Arc<D>,
    lines: [Mutex<Option<Line<D>>>; 3],
}

/// A connection that is idle.
pub(crate) struct Line<D: Dialect> {
    pub(crate) conn: D::Conn,
    /// When it was asked for.
    pub(crate) since: Moment,
}

impl<D: Dialect> Idle<D> {
    pub(crate) fn new(dialect: Arc<D>) -> Arc<Self> {
        let new = Arc::new(Self { dialect, lines: Default::default() });
        if !D::IS_REMOTE {
            let all: Arc<dyn Check> = Arc::<Self>::clone(&new);
            let mut known = ALL.lock().unwrap_or_else(PoisonError::into_inner);
            known.retain(|one| one.strong_count() > 0);
            known.push(Arc::downgrade(&all));
        }
        new
    }

    pub(crate) fn on(&self, route: Route) -> MutexGuard<'_, Option<Line<D>>> {
        self.lines[route as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<D: Dialect> Check for Idle<D> {
    fn close_lost(&self) {
        for line in &self.lines {
            let mut line = match line.try_lock() {
                Ok(line) => line,
                Err(TryLockError::Poisoned(line)) => line.into_inner(),
                // It is coming or going at this moment.
                Err(TryLockError::WouldBlock) => continue,
            };
            if line.as_ref().is_some_and(|line| self.dialect.intact(&line.conn).is_err()) {
                drop(line.take());
            }
        }
    }
}

/// Closes the idle connections of this process whose files are not those that others find under their names. What they
/// might have answered would not have been given to anybody.
#[cfg_attr(not(feature = "sqlite"), allow(dead_code))]
pub(crate) fn close_lost() {
    let all: Vec<_> = {
        let known = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().filter_map(Weak::upgrade).collect()
    };
    for one in &all {
        one.close_lost();
    }
}
