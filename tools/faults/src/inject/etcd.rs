//! Faults of what an etcd keeps.

use testbed::Etcd;

use super::super::servers::failed;
use crate::error::{Error, Result};

/// The beginning of all keys and the end of them, in Base64: `lockwell/` and `lockwell0`.
const ALL_KEYS: &str = r#"{"key":"bG9ja3dlbGwv","range_end":"bG9ja3dlbGww"}"#;

/// Deletes all keys of locks.
pub(super) fn remove_keys(member: &Etcd) -> Result<()> {
    let answer = call(member, "/v3/kv/deleterange", ALL_KEYS)?;
    if answer.contains("\"deleted\"") { Ok(()) } else { Err(Error::failed(format!("no keys: {answer}"))) }
}

fn call(member: &Etcd, path: &str, json: &str) -> Result<String> {
    member.call(path, json).map_err(failed)
}
