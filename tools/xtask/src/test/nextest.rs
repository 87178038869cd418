//! The tests that run in processes of their own, by `cargo nextest`.

use std::fs;
use std::process::Command;

use testbed::Release;

use super::run::{ALL, Failed, Outcome, Run};
use crate::shell::{Result, cargo, line, root, target};

fn command(args: &[&str]) -> Command {
    let mut command = cargo();
    command.current_dir(root()).args(["nextest", "run"]);
    // Beside --workspace, cargo would take no notice of a chosen package.
    let has_package = args.iter().any(|arg| arg.starts_with("-p") || arg.starts_with("--package"));
    command.args(&ALL[usize::from(has_package)..]).args(args);
    command
}

/// Runs the tests that these arguments choose, on this release of the servers.
pub(super) fn run(run: &Run, title: &str, args: &[&str], release: Option<&Release>) -> Result<Outcome> {
    let mut nextest = command(args);
    run.set(&mut nextest);
    if let Some(release) = release {
        nextest.env("LOCKWELL_RELEASES", release.name());
    }
    // That of an earlier run would be taken for that of one that builds nothing.
    let report = target().join("nextest/default/junit.xml");
    drop(fs::remove_file(&report));
    eprintln!("xtask: {}", line(&nextest));
    let status = nextest.status().map_err(|error| format!("{}: {error}", line(&nextest)))?;
    let text = fs::read_to_string(&report).unwrap_or_default();
    let failures: Vec<_> =
        failures(&text).into_iter().map(|(program, test)| failed(run, &program, &test, release)).collect();
    let problem = (!status.success() && failures.is_empty()).then(|| format!("nextest, {title}: {status}"));
    Ok(Outcome { failed: failures, problem, summary: format!("nextest, {title}: {}", counts(&text)) })
}

fn failed(run: &Run, program: &str, test: &str, release: Option<&Release>) -> Failed {
    let filter = format!("binary_id(={program}) & test(={test})");
    let mut alone = command(&["--profile", "alone", "--run-ignored", "all", "-E", &filter]);
    run.set(&mut alone);
    if let Some(release) = release {
        alone.env("LOCKWELL_RELEASES", release.name());
    }
    Failed { name: format!("{program} {test}"), alone }
}

/// The value of an attribute in a tag of XML.
fn attribute(tag: &str, name: &str) -> String {
    let value = tag.split_once(&format!(" {name}=\"")).and_then(|(_, rest)| rest.split_once('"'));
    let value = value.map_or("", |(value, _)| value);
    value.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&")
}

/// The programs and the tests that have failed, by a report in the form of `JUnit`.
fn failures(report: &str) -> Vec<(String, String)> {
    let cases =
        report.split("<testcase ").skip(1).map(|case| case.split("</testcase>").next().unwrap_or(case));
    let failed = cases.filter(|case| case.contains("<failure ") || case.contains("<error "));
    let named = failed.map(|case| format!(" {}", case.split('>').next().unwrap_or_default()));
    named.map(|tag| (attribute(&tag, "classname"), attribute(&tag, "name"))).collect()
}

/// How many tests ran.
fn counts(report: &str) -> String {
    let tag = report.split("<testsuites").nth(1).and_then(|rest| rest.split('>').next()).unwrap_or_default();
    let count = |name: &str| attribute(tag, name).parse().unwrap_or(0_usize);
    let failed = count("failures") + count("errors");
    format!("{} passed, {failed} failed", count("tests").saturating_sub(failed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_read_from_the_report() {
        let report = r#"<?xml version="1.0"?>
<testsuites name="nextest-run" tests="3" failures="1" errors="1" uuid="x">
    <testsuite name="a::b" tests="3">
        <testcase name="c::d" classname="a::b" time="0.01">
        </testcase>
        <testcase name="e &lt; f" classname="a::b" time="0.01">
            <failure type="test failure with exit code 101">why</failure>
        </testcase>
        <testcase name="g" classname="a" time="0.01">
            <error type="execution failure"/>
        </testcase>
        <testcase name="h" classname="a" time="0.01"/>
    </testsuite>
</testsuites>"#;
        let expected = [("a::b", "e < f"), ("a", "g")].map(|(one, other)| (one.to_owned(), other.to_owned()));
        assert_eq!(failures(report), expected);
        assert_eq!(counts(report), "1 passed, 2 failed");
        assert_eq!(counts(""), "0 passed, 0 failed");
    }
}
