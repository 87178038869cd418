//! Many claims as one JSON parameter.

use lockwell_core::{Claim, Grant, LockName};
use serde::Serialize;
use uuid::Uuid;

use super::call::hex;
use crate::ids::AsUuid;
use crate::words::{QueuedClaim, TakeRequest, block, micros};

/// Rows sorted by name, so that two batches lock the rows of the table in the same order, and the order in
/// which they were asked for.
#[derive(Debug)]
pub(super) struct Rows {
    json: String,
    /// The index of each sorted row in the request.
    places: Vec<usize>,
}

/// One row. An array in JSON, whose columns are those of `want` in the statements: name and owner in
/// hexadecimal, which JSON and every collation carry unchanged; the ttl; the number of the place; the label;
/// the number of tokens; the mode; the provisional lease with which a release may grant the lock, or 0; and
/// the index in the request.
#[derive(Debug, Default, Serialize)]
struct Row<'a>(String, String, i64, i64, &'a str, i64, i64, i64, usize);

fn row(claim: &Claim) -> Row<'_> {
    let (name, owner) = (hex(claim.name().as_str().as_bytes()), hex(claim.owner().as_uuid().as_bytes()));
    Row(name, owner, micros(claim.ttl()), 0, claim.label(), block(claim), claim.mode().code(), 0, 0)
}

impl Rows {
    pub(super) fn of_requests(requests: &[TakeRequest]) -> sqlx_core::Result<Self> {
        Self::of_claims(requests.iter().map(|request| &request.claim))
    }

    pub(super) fn of_entries(entries: &[&QueuedClaim]) -> sqlx_core::Result<Self> {
        let rows = entries.iter().map(|QueuedClaim { claim, row: place }| Row {
            3: place.number,
            7: place.lease.map_or(0, micros),
            ..row(claim)
        });
        Self::new(rows.collect())
    }

    pub(super) fn of_places(places: &[(i64, Uuid)]) -> sqlx_core::Result<Self> {
        let row =
            |(number, owner): &(i64, Uuid)| Row { 1: hex(owner.as_bytes()), 3: *number, ..Row::default() };
        Self::new(places.iter().map(row).collect())
    }

    pub(super) fn of_claims<'a>(claims: impl Iterator<Item = &'a Claim>) -> sqlx_core::Result<Self> {
        Self::new(claims.map(row).collect())
    }

    pub(super) fn of_grants<'a>(grants: impl Iterator<Item = &'a Grant>) -> sqlx_core::Result<Self> {
        Self::of_claims(grants.map(Grant::claim))
    }

    pub(super) fn of_names<'a>(names: impl Iterator<Item = &'a LockName>) -> sqlx_core::Result<Self> {
        let row = |name: &LockName| Row { 0: hex(name.as_str().as_bytes()), ..Row::default() };
        Self::new(names.map(row).collect())
    }

    fn new(mut rows: Vec<Row<'_>>) -> sqlx_core::Result<Self> {
        rows.iter_mut().enumerate().for_each(|(place, row)| row.8 = place);
        rows.sort_by(|a, b| a.0.cmp(&b.0));
        let places = rows.iter().map(|row| row.8).collect();
        let json = serde_json::to_string(&rows).map_err(|error| sqlx_core::Error::Encode(error.into()))?;
        Ok(Self { json, places })
    }

    pub(super) fn json(&self) -> &str {
        &self.json
    }

    /// Sorts answers, which come in the order of the names, into the order of the request.
    pub(super) fn in_order<T>(&self, answers: impl Iterator<Item = T>) -> Vec<T> {
        let mut answers: Vec<_> = self.places.iter().zip(answers).collect();
        answers.sort_by_key(|(place, _)| **place);
        answers.into_iter().map(|(_, answer)| answer).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_back_in_the_order_of_the_question() {
        let names = ["b", "é", "a"].map(|name| LockName::new(name).unwrap());
        let rows = Rows::of_names(names.iter()).unwrap();
        assert!(rows.json().starts_with("[[\"61\","), "{}", rows.json());
        assert_eq!(rows.in_order(["a", "b", "é"].into_iter()), ["b", "é", "a"]);
    }
}
