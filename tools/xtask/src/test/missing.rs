//! What the tests could not run on this machine. A runner counts such a test as passed, since a test cannot tell it
//! anything else. So the test writes a line into a file, see `testbed/src/lacking.rs`, and the conformance suite a
//! report.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use testbed::Release;

/// How the cases of the suite went on one target, as far as it is told here: see `tests/support/report.rs`.
#[derive(Debug, Deserialize)]
struct Record {
    target: String,
    /// The release that it is, if it is a server.
    release: Option<String>,
    /// What the program itself said.
    version: Option<String>,
    /// Why cases were not run.
    missing: Option<String>,
}

/// The targets of the suite that are missing, and servers of another version than the documentation names.
pub(super) fn of_suite(report: &str) -> Vec<String> {
    let records: Vec<Record> = serde_json::from_str(report).unwrap_or_default();
    let mut remarks = BTreeSet::new();
    for Record { target, release, version, missing } in records {
        remarks.extend(missing.map(|why| format!("not run: conformance on {target} ({why})")));
        let release = Release::all().iter().find(|it| Some(it.name()) == release.as_deref());
        remarks.extend(release.and_then(|release| release.surprise(version.as_deref()?)));
    }
    remarks.into_iter().collect()
}

/// The lines for the end of a run, by those that the tests have written. A server that is missing can be the
/// reason of a hundred tests: they have one line.
pub(super) fn remarks(written: &str) -> Vec<String> {
    let mut alike = BTreeMap::<_, BTreeSet<&str>>::new();
    for line in written.lines() {
        if let [kind, test, part, why] = line.split('\t').collect::<Vec<_>>()[..] {
            alike.entry((kind == "beyond", part, why)).or_default().insert(test);
        }
    }
    let mut remarks = Vec::new();
    for ((is_beyond, part, why), tests) in alike {
        let begin = if is_beyond { "cannot be run here" } else { "not run" };
        let first = tests.first().copied().unwrap_or_default();
        let more = if tests.len() > 1 { format!(" and {} more", tests.len() - 1) } else { String::new() };
        let part = if part.is_empty() { String::new() } else { format!(" [{part}]") };
        remarks.push(format!("{begin}: {first}{more}{part} ({why})"));
    }
    remarks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_reason_has_one_line() {
        let written = "missing\tx b\t\tno etcd\nbeyond\ta::c\tINT\tit is ignored here\nmissing\tx a\t\tno etcd\n\
                       missing\tx b\t\tno etcd\nof another form\n";
        let expected =
            ["not run: x a and 1 more (no etcd)", "cannot be run here: a::c [INT] (it is ignored here)"];
        assert_eq!(remarks(written), expected);
        assert!(remarks("").is_empty());
    }

    #[test]
    fn a_missing_server_and_an_unexpected_version_are_told() {
        let report = r#"[
            {"target": "redis8", "release": "redis8", "version": "8.4.0", "missing": null, "cases": 3},
            {"target": "valkey9", "release": "valkey9", "version": null, "missing": "no network"},
            {"target": "memory", "release": null, "version": null, "missing": null}
        ]"#;
        let remarks = of_suite(report);
        assert_eq!(remarks.len(), 2, "{remarks:?}");
        assert!(remarks.iter().any(|one| one.contains("8.4.0")), "{remarks:?}");
        assert!(remarks.contains(&"not run: conformance on valkey9 (no network)".to_owned()));
        assert!(of_suite("").is_empty());
    }
}
