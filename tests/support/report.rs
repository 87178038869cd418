//! What ran where, for `cargo xtask test`, which asks for it by the variable `LOCKWELL_REPORT`: the path of a
//! file.

use std::collections::BTreeMap;

use lockwell::conformance::CaseRecord;
use serde_json::{Value, json};
use testbed::Release;

/// Writes it down, with the versions of the servers.
pub(crate) fn write(
    records: &[CaseRecord],
    releases: &BTreeMap<String, &'static Release>,
) -> Result<(), String> {
    let Some(path) = std::env::var_os("LOCKWELL_REPORT") else { return Ok(()) };
    let of = |record: &CaseRecord| -> Value {
        let release = releases.get(&record.target).copied();
        let version = release.filter(|_| record.begun > 0).map(Release::version);
        let version = version.transpose().unwrap_or_else(|error| Some(error.to_string()));
        json!({
            "target": record.target,
            "release": release.map(Release::name),
            "version": version,
            "cases": record.cases,
            "begun": record.begun,
            "passed": record.passed,
            "seconds": record.took.as_secs(),
            "missing": record.missing,
        })
    };
    let ran = |record: &&CaseRecord| record.begun > 0 || record.missing.is_some();
    let all: Vec<Value> = records.iter().filter(ran).map(of).collect();
    let text = serde_json::to_string_pretty(&all).map_err(|error| error.to_string())?;
    std::fs::write(&path, text + "\n").map_err(|error| format!("{}: {error}", path.to_string_lossy()))
}
