//! The locks by contention, for programs.

use serde::Serialize;

use super::board::{Board, Row};
use crate::json::{LockReport, SCHEMA_VERSION, millis};

#[derive(Serialize)]
pub(super) struct TopReport<'a> {
    schema_version: u32,
    /// The address without its password.
    server: &'a str,
    /// How many locks are known, and at how many of them the last look was.
    known: usize,
    looked_at: usize,
    locks: Vec<RowReport<'a>>,
}

#[derive(Serialize)]
struct RowReport<'a> {
    #[serde(flatten)]
    lock: LockReport<'a>,
    /// Left out while there was one look only.
    #[serde(skip_serializing_if = "Option::is_none")]
    hand_overs_per_s_at_least: Option<f64>,
    age_ms: u64,
}

impl<'a> TopReport<'a> {
    pub(super) fn new(server: &'a str, board: &Board, rows: &[Row<'a>]) -> Self {
        let one = |row: &Row<'a>| RowReport {
            lock: LockReport::new(row.status),
            hand_overs_per_s_at_least: row.grants_per_second.map(|rate| (rate * 1000.0).floor() / 1000.0),
            age_ms: millis(row.age),
        };
        Self {
            schema_version: SCHEMA_VERSION,
            server,
            known: board.known(),
            looked_at: board.looked(),
            locks: rows.iter().map(one).collect(),
        }
    }
}
