//! Statements that a session can have prepared under a name.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::bound::BoundStatement;
use crate::sql::library::Prepared;
use crate::sql::table::{Sql, Table};

/// A statement that a session can have prepared under a name.
#[derive(Clone, Debug)]
pub(super) struct NamedSql {
    pub(super) sql: Sql,
    /// Another text has another name: a pooler may give the session to others.
    pub(super) name: String,
}

impl Prepared for NamedSql {
    fn prepare(table: &Table, text: &str) -> Self {
        let sql = Sql::new(table, text);
        let mut hasher = DefaultHasher::new();
        sql.text().hash(&mut hasher);
        let name = format!("lockwell_{:016x}", hasher.finish());
        Self { sql, name }
    }
}

impl NamedSql {
    /// Prepares it, before other statements of a message.
    pub(super) fn prepare(&self) -> String {
        format!("PREPARE {} AS {}; ", self.name, self.sql.text())
    }

    /// The statement with its arguments yet to be bound.
    pub(super) fn call(&self) -> BoundStatement<'_> {
        BoundStatement::written(&self.sql)
    }
}
