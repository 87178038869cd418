//! Many claims as one JSON parameter.

use lockcore::{Claim, Grant, LockName};
use serde::Serialize;
use uuid::Uuid;

use crate::dialect::{NO_TICKET, TakeRequest, block, micros};

/// Rows sorted by name, so that two batches lock the rows of the table in the same order, and the order in which they were
/// asked for.
#[derive(Debug)]
pub(super) struct Rows {
    json: String,
    /// The index of each sorted row in the request.
    places: Vec<usize>,
}

/// Name and owner in hexadecimal, which JSON and every collation carry unchanged; then ttl, ticket, label, the number of
/// tokens, mode, and the token that was granted.
#[derive(Debug, Serialize)]
struct Row<'a>(String, String, i64, i64, &'a str, i64, i64, i64);

fn row(claim: &Claim, ticket: i64, token: i64) -> Row<'_> {
    let (name, owner) = (hex(claim.name().as_str().as_bytes()), hex(claim.owner().as_uuid().as_bytes()));
    Row(name, owner, micros(claim.ttl()), ticket, claim.label(), block(claim), claim.mode().code(), token)
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        write!(text, "{byte:02X}").unwrap_or_default();
        text
    })
}

impl Rows {
    pub(super) fn of_requests(requests: &[TakeRequest]) -> sqlx::Result<Self> {
        Self::new(requests.iter().map(|request| row(&request.claim, request.ticket, 0)).collect())
    }

    pub(super) fn of_granted<'a>(granted: impl Iterator<Item = (&'a Claim, i64)>) -> sqlx::Result<Self> {
        Self::new(granted.map(|(claim, token)| row(claim, NO_TICKET, token)).collect())
    }

    pub(super) fn of_claims<'a>(claims: impl Iterator<Item = &'a Claim>) -> sqlx::Result<Self> {
        Self::new(claims.map(|claim| row(claim, NO_TICKET, 0)).collect())
    }

    pub(super) fn of_grants<'a>(grants: impl Iterator<Item = &'a Grant>) -> sqlx::Result<Self> {
        Self::of_claims(grants.map(Grant::claim))
    }

    pub(super) fn of_members(members: &[(Vec<u8>, Uuid)]) -> sqlx::Result<Self> {
        let row = |(name, owner): &(Vec<u8>, Uuid)| Row(hex(name), hex(owner.as_bytes()), 0, 0, "", 0, 0, 0);
        Self::new(members.iter().map(row).collect())
    }

    pub(super) fn of_names<'a>(names: impl Iterator<Item = &'a LockName>) -> sqlx::Result<Self> {
        let row = |name: &LockName| Row(hex(name.as_str().as_bytes()), String::new(), 0, 0, "", 0, 0, 0);
        Self::new(names.map(row).collect())
    }

    fn new(rows: Vec<Row<'_>>) -> sqlx::Result<Self> {
        let mut rows: Vec<_> = rows.into_iter().enumerate().collect();
        rows.sort_by(|(_, a), (_, b)| a.0.cmp(&b.0));
        let places = rows.iter().map(|(place, _)| *place).collect();
        let rows: Vec<_> = rows.into_iter().map(|(_, row)| row).collect();
        let json = serde_json::to_string(&rows).map_err(|error| sqlx::Error::Encode(error.into()))?;
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
