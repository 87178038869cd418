//! `cargo xtask semver`: what the next version of each published package may be called, by `cargo
//! semver-checks`.

use std::process::{Command, ExitCode};

use serde_json::Value;

use crate::shell::{Result, cargo, foreground, root, text};

/// They are not covered by semantic versioning.
const UNCOVERED: [&str; 3] = ["conformance", "default", "fuzzing"];

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Options {
    /// Compare with this version of the registry: the last release.
    #[arg(long, value_name = "VERSION")]
    version: Option<String>,
    /// Compare with a commit.
    #[arg(long, value_name = "COMMIT")]
    rev: Option<String>,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    if text(Command::new("cargo-semver-checks").args(["semver-checks", "--version"])).is_err() {
        println!("IGNORED: nothing was compared: cargo install cargo-semver-checks --locked");
        return Ok(ExitCode::SUCCESS);
    }
    let mut metadata = cargo();
    metadata.current_dir(root()).args(["metadata", "--format-version=1", "--no-deps", "--locked"]);
    let metadata: Value = serde_json::from_str(&text(&mut metadata)?).map_err(|error| error.to_string())?;
    let mut breaking = Vec::new();
    for (package, features) in published(&metadata) {
        if foreground(&mut command(&package, &features, options))? != ExitCode::SUCCESS {
            breaking.push(package);
        }
    }
    if breaking.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    Err(format!("these need a higher version than they have: {}", breaking.join(", ")))
}

/// The packages that are published, with the features whose API is covered.
fn published(metadata: &Value) -> Vec<(String, Vec<String>)> {
    let all = metadata["packages"].as_array().into_iter().flatten();
    // An empty list of registries: none.
    let published = all.filter(|package| package["publish"].as_array().is_none_or(|to| !to.is_empty()));
    let named = published.map(|package| {
        let features = package["features"].as_object().into_iter().flat_map(serde_json::Map::keys);
        let covered = features.filter(|feature| !UNCOVERED.contains(&feature.as_str())).cloned().collect();
        (package["name"].as_str().unwrap_or_default().to_owned(), covered)
    });
    named.collect()
}

fn command(package: &str, features: &[String], options: &Options) -> Command {
    let mut command = cargo();
    command.current_dir(root()).args(["semver-checks", "--package", package, "--only-explicit-features"]);
    for feature in features {
        command.args(["--features", feature]);
    }
    for (option, value) in [("--baseline-version", &options.version), ("--baseline-rev", &options.rev)] {
        if let Some(value) = value {
            command.args([option, value]);
        }
    }
    command
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_published_is_compared_without_what_is_not_covered() {
        let metadata = json!({ "packages": [
            { "name": "ours", "publish": null,
              "features": { "default": [], "tls": [], "conformance": [], "fuzzing": [] } },
            { "name": "tool", "publish": [], "features": {} },
        ]});
        let published = published(&metadata);
        assert_eq!(published, [("ours".to_owned(), vec!["tls".to_owned()])]);
        let options = Options { version: None, rev: Some("abc".to_owned()) };
        let line = crate::shell::line(&command(&published[0].0, &published[0].1, &options));
        let words = "semver-checks --package ours --only-explicit-features --features tls --baseline-rev abc";
        assert!(line.ends_with(words), "{line}");
    }
}
