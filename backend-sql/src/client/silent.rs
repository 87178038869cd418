//! The connections of a client that had no answer in time.
//!
//! A connection without an answer is replaced. The server does not notice that as long as it carries the
//! statement out, for instance since a commit waits for a replica that is away, and each try would leave one
//! more connection there. So as long as it does, nothing else is sent on the same route.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use lockwell_core::backend::lock;

use crate::dialect::Dialect;
use crate::dialect::requests::Route;

#[derive(Default)]
pub(crate) struct Silent {
    /// Whether there was one.
    known: AtomicBool,
    /// Those whose statements the server may still carry out, by their names there.
    sessions: Mutex<Vec<(Route, String)>>,
}

impl Silent {
    /// Whether a new connection is to be asked for its name. The first one that does not answer has none: that
    /// would cost each connection one more question.
    pub(crate) fn names_connections(&self) -> bool {
        self.known.load(Ordering::Relaxed)
    }

    /// Whether the server may still carry out what was sent on one of them.
    pub(crate) fn may_be_busy(&self, route: Route) -> bool {
        lock(&self.sessions).iter().any(|(of, _)| *of == route)
    }

    /// Asks the server, over another connection, whether it does.
    pub(crate) async fn is_busy<D: Dialect>(
        &self,
        route: Route,
        dialect: &D,
        conn: &mut D::Conn,
    ) -> sqlx_core::Result<bool> {
        let sessions = lock(&self.sessions).clone();
        for (_, session) in sessions.into_iter().filter(|(of, _)| *of == route) {
            if dialect.is_busy(conn, &session).await? {
                return Ok(true);
            }
            lock(&self.sessions).retain(|(_, one)| *one != session);
        }
        Ok(false)
    }

    /// A call begins on this route, on the connection with this name.
    pub(crate) fn call(&self, route: Route, session: Option<String>) -> Unanswered<'_> {
        Unanswered { silent: self, route, session, is_over: false }
    }
}

/// A call, as long as it has no answer. The batcher may drop it.
pub(crate) struct Unanswered<'a> {
    silent: &'a Silent,
    route: Route,
    session: Option<String>,
    is_over: bool,
}

impl Unanswered<'_> {
    /// There is an answer. Returns the name of the connection.
    pub(crate) fn end(mut self) -> Option<String> {
        self.is_over = true;
        self.session.take()
    }
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.silent.known.store(true, Ordering::Relaxed);
            let session = self.session.take().map(|session| (self.route, session));
            lock(&self.silent.sessions).extend(session);
        }
    }
}
