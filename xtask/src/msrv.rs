//! `cargo xtask msrv`: the promised Rust version is enough for every dependency.
//!
//! Cargo's resolver keeps that where it can and only warns where it cannot. Here it is an error. With `--compile` that version checks
//! the workspace, where it is installed.

use std::process::{Command, ExitCode};

use serde_json::Value;

use crate::shell::{Result, cargo, foreground, root, text};

pub(crate) type Version = (u32, u32, u32);

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Let the promised version check all libraries and programs, too.
    #[arg(long)]
    compile: bool,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let mut command = cargo();
    command.current_dir(root()).args(["metadata", "--format-version=1", "--all-features"]);
    let metadata: Value = serde_json::from_str(&text(&mut command)?).map_err(|error| error.to_string())?;
    let promised = promised(&metadata)?;
    let mut problems = too_new(&metadata, promised);
    let running = text(Command::new("rustc").arg("--version"))?;
    let rustc = running.split(' ').nth(1).and_then(parse).ok_or(format!("what version is {running:?}?"))?;
    if rustc < promised {
        problems.push(format!("rustc is {}", shown(rustc)));
    }
    if problems.is_empty() {
        let packages = metadata["packages"].as_array().map_or(0, Vec::len);
        println!("Rust {} is enough for all {packages} packages; rustc is {}", shown(promised), shown(rustc));
        return if options.compile { compile(promised) } else { Ok(ExitCode::SUCCESS) };
    }
    Err(format!("the workspace promises Rust {}, but {}", shown(promised), problems.join(", ")))
}

/// Checks the workspace with that version.
fn compile((major, minor, _): Version) -> Result<ExitCode> {
    let toolchain = format!("{major}.{minor}");
    let rustup = |program: &str| {
        let mut command = Command::new("rustup");
        command.current_dir(root()).args(["run", &toolchain, program]);
        command
    };
    if text(rustup("rustc").arg("--version")).is_err() {
        println!("IGNORED: nothing was compiled: rustup toolchain install {toolchain} --profile minimal");
        return Ok(ExitCode::SUCCESS);
    }
    let all = ["check", "--locked", "--quiet", "--workspace", "--all-features", "--lib", "--bins"];
    foreground(rustup("cargo").args(all))
}

/// The version that the members of the workspace promise, which is the same for all.
fn promised(metadata: &Value) -> Result<Version> {
    let members: Vec<_> = metadata["workspace_members"].as_array().into_iter().flatten().collect();
    let versions = packages(metadata)
        .filter(|package| members.contains(&&package["id"]))
        .map(|package| rust_version(package).ok_or(format!("{} names no rust-version", package["name"])));
    let mut versions = versions.collect::<Result<Vec<_>>>()?;
    versions.sort_unstable();
    versions.dedup();
    match versions[..] {
        [one] => Ok(one),
        _ => Err(format!("the members of the workspace name {} versions of Rust", versions.len())),
    }
}

/// The packages that need more than that.
fn too_new(metadata: &Value, promised: Version) -> Vec<String> {
    let mut problems = Vec::new();
    for package in packages(metadata) {
        if let Some(needed) = rust_version(package).filter(|needed| *needed > promised) {
            let text = |field: &str| package[field].as_str().unwrap_or_default().to_owned();
            problems.push(format!("{} {} needs {}", text("name"), text("version"), shown(needed)));
        }
    }
    problems
}

fn packages(metadata: &Value) -> impl Iterator<Item = &Value> {
    metadata["packages"].as_array().into_iter().flatten()
}

fn rust_version(package: &Value) -> Option<Version> {
    parse(package["rust_version"].as_str()?)
}

/// `1.94`, `1.94.0`, `1.95.0-nightly`.
pub(crate) fn parse(text: &str) -> Option<Version> {
    let plain = text.split(['-', '+']).next()?;
    let mut numbers = plain.split('.').map(str::parse::<u32>);
    let major = numbers.next()?.ok()?;
    let mut or_zero = || numbers.next().map_or(Some(0), std::result::Result::ok);
    let (minor, patch) = (or_zero()?, or_zero()?);
    Some((major, minor, patch))
}

fn shown((major, minor, patch): Version) -> String {
    format!("{major}.{minor}.{patch}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn versions() {
        assert_eq!(parse("1.94"), Some((1, 94, 0)));
        assert_eq!(parse("1.95.1-nightly"), Some((1, 95, 1)));
        assert_eq!(parse("1"), Some((1, 0, 0)));
        assert_eq!(parse("one"), None);
        assert!(parse("1.100") > parse("1.94.9"));
    }

    #[test]
    fn a_demanding_dependency_is_named() {
        let metadata = json!({
            "workspace_members": ["ours"],
            "packages": [
                { "id": "ours", "name": "ours", "version": "0.1.0", "rust_version": "1.94" },
                { "id": "a", "name": "modest", "version": "1.0.0", "rust_version": "1.60" },
                { "id": "b", "name": "silent", "version": "1.0.0", "rust_version": null },
                { "id": "c", "name": "greedy", "version": "2.0.0", "rust_version": "1.94.1" },
            ],
        });
        let promised = promised(&metadata).unwrap();
        assert_eq!(too_new(&metadata, promised), ["greedy 2.0.0 needs 1.94.1"]);
    }

    #[test]
    fn members_must_agree() {
        let metadata = json!({
            "workspace_members": ["a", "b"],
            "packages": [
                { "id": "a", "name": "a", "rust_version": "1.94" },
                { "id": "b", "name": "b", "rust_version": "1.90" },
            ],
        });
        assert!(promised(&metadata).unwrap_err().contains("2 versions"));
    }
}
