//! The driver for PostgreSQL.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use lockwell_core::backend::Waiters;
use lockwell_core::{Claim, Grant};
use sqlx_postgres::PgConnection;
use uuid::Uuid;

use super::bound::{BoundStatement, Style};
use super::durability::Grace;
use super::session::Session;
use super::statements::Statements;
use crate::dialect::hints::Hints;
use crate::ids::AsUuid;
use crate::sql::table::Sql;
use crate::words::{block, micros};

/// The PostgreSQL dialect.
pub struct Postgres {
    /// The address for messages.
    pub(super) address: String,
    pub(super) session: Arc<Session>,
    /// Whether the address says that a pooler carries no notifications.
    pub(super) pooled: bool,
    pub(super) sql: Statements,
    pub(super) hints: Hints,
    pub(super) grace: Grace,
}

/// A connection.
#[derive(Debug)]
pub struct Conn {
    inner: PgConnection,
    /// The waiters of the client whose connection it is.
    pub(super) waiters: Arc<Waiters>,
    /// The names under which its session has prepared statements.
    pub(super) prepared: Vec<String>,
}

impl Conn {
    pub(super) fn new(inner: PgConnection, waiters: &Arc<Waiters>) -> Self {
        Self { inner, waiters: Arc::clone(waiters), prepared: Vec::new() }
    }

    pub(super) fn client(&self) -> Uuid {
        self.waiters.client().as_uuid()
    }
}

impl Deref for Conn {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.inner
    }
}

impl DerefMut for Conn {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.inner
    }
}

impl Postgres {
    pub(super) fn statement<'a>(&self, sql: &'a Sql) -> BoundStatement<'a> {
        BoundStatement::new(sql, if self.session.is_shared() { Style::Inline } else { Style::Prepared })
    }

    /// A statement that takes one lock: its first parameters say what the claim asks for.
    pub(super) fn taking_one<'a>(&self, sql: &'a Sql, claim: &'a Claim) -> BoundStatement<'a> {
        self.statement(sql).of(claim).bind(micros(claim.ttl())).bind(claim.label()).bind(block(claim))
    }

    /// A statement that takes several locks: its first parameters say for each claim what it asks for.
    pub(super) fn taking<'a>(
        &self,
        sql: &'a Sql,
        claims: impl Iterator<Item = &'a Claim> + Clone,
    ) -> BoundStatement<'a> {
        self.statement(sql)
            .of_each(claims.clone())
            .bind(ttls(claims.clone()))
            .bind(labels(claims.clone()))
            .bind(tokens(claims))
    }
}

impl BoundStatement<'_> {
    /// Binds the name and the owner of a claim.
    pub(super) fn of(self, claim: &Claim) -> Self {
        self.bind(claim.name().as_str()).bind(claim.owner().as_uuid())
    }

    /// The same for several claims, as arrays.
    pub(super) fn of_each<'a>(self, claims: impl Iterator<Item = &'a Claim> + Clone) -> Self {
        let owners: Vec<Uuid> = claims.clone().map(|claim| claim.owner().as_uuid()).collect();
        self.bind(names(claims)).bind(owners)
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Postgres({})", self.address)
    }
}

pub(super) fn names<'a>(claims: impl Iterator<Item = &'a Claim>) -> Vec<&'a str> {
    claims.map(|claim| claim.name().as_str()).collect()
}

pub(super) fn labels<'a>(claims: impl Iterator<Item = &'a Claim>) -> Vec<&'a str> {
    claims.map(Claim::label).collect()
}

pub(super) fn ttls<'a>(claims: impl Iterator<Item = &'a Claim>) -> Vec<i64> {
    claims.map(|claim| micros(claim.ttl())).collect()
}

pub(super) fn last_tokens<'a>(grants: impl IntoIterator<Item = &'a Grant>) -> Vec<i64> {
    grants.into_iter().map(|grant| grant.last_token().get().cast_signed()).collect()
}

pub(super) fn tokens<'a>(claims: impl Iterator<Item = &'a Claim>) -> Vec<i64> {
    claims.map(block).collect()
}
