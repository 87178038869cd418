//! `cargo xtask msrv`: the Rust version that our packages promise is enough for every dependency.
//!
//! Cargo's resolver keeps that where it can and only warns where it cannot. Here it is an error. An
//! application that switches a backend off does not need the Rust version of that backend: so each feature is
//! checked alone as well, against what those of our packages promise that it needs. With `--compile` the
//! promised versions check our packages, where they are installed.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, ExitCode};

use serde_json::Value;

use crate::shell::{Result, cargo, foreground, root, text};

pub(crate) type Version = (u32, u32, u32);

/// The package that has the features.
const FACADE: &str = "lockwell";

/// Features that change what others bring, and are nothing alone.
const BESIDE: &str = "tls,sasl";

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Let the promised versions check all libraries and programs, too.
    #[arg(long)]
    compile: bool,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let mut command = cargo();
    command.current_dir(root()).args(["metadata", "--format-version=1", "--all-features", "--locked"]);
    let metadata: Value = serde_json::from_str(&text(&mut command)?).map_err(|error| error.to_string())?;
    let promised = promised(&metadata)?;
    let mut problems = too_new(packages(&metadata), promised, "the workspace");
    let running = text(Command::new("rustc").arg("--version"))?;
    let rustc = running.split(' ').nth(1).and_then(parse).ok_or(format!("what version is {running:?}?"))?;
    if rustc < promised {
        problems.push(format!(
            "the workspace promises Rust {}, but rustc is {}",
            shown(promised),
            shown(rustc)
        ));
    }
    let count = packages(&metadata).count();
    println!(
        "Rust {} is what all {count} packages together may need; rustc is {}",
        shown(promised),
        shown(rustc)
    );

    let mut each = Vec::new();
    for feature in features(&metadata)? {
        let needed = tree(&format!("{feature},{BESIDE}"), "all")?;
        let promise = promise_with(&metadata, &needed)?;
        problems.extend(too_new(among(&metadata, &needed), promise, &format!("the feature {feature:?}")));
        println!("Rust {} with {feature:?}: {} packages", shown(promise), needed.len());
        each.push((feature, promise));
    }
    if !problems.is_empty() {
        return Err(problems.join("; "));
    }
    if !options.compile {
        return Ok(ExitCode::SUCCESS);
    }
    for (version, with) in together(&each) {
        if version < promised {
            let only = ["--package", FACADE, "--lib", "--features", &with];
            let compiled = compile(version, &only)?;
            if compiled != ExitCode::SUCCESS {
                return Ok(compiled);
            }
        }
    }
    compile(promised, &["--workspace", "--all-features", "--lib", "--bins"])
}

/// Each version, and all features that need no newer one.
fn together(each: &[(String, Version)]) -> BTreeMap<Version, String> {
    let features = |version| {
        let with = each.iter().filter(|(_, promise)| *promise <= version);
        with.map(|(feature, _)| feature.as_str()).collect::<Vec<_>>().join(",")
    };
    each.iter().map(|(_, version)| (*version, features(*version))).collect()
}

/// Checks packages with that version.
fn compile((major, minor, _): Version, what: &[&str]) -> Result<ExitCode> {
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
    foreground(rustup("cargo").args(["check", "--locked", "--quiet"]).args(what))
}

/// The newest version that a member of the workspace promises to be enough. Each names one.
fn promised(metadata: &Value) -> Result<Version> {
    let members: Vec<_> = metadata["workspace_members"].as_array().into_iter().flatten().collect();
    let ours = packages(metadata).filter(|package| members.contains(&&package["id"]));
    newest(ours)?.ok_or_else(|| "the workspace has no members".to_owned())
}

/// What our packages promise that these features need.
fn promise_with(metadata: &Value, needed: &BTreeSet<String>) -> Result<Version> {
    let ours = packages(metadata).filter(|package| package["source"].is_null());
    let ours = ours.filter(|package| package["name"] == FACADE || needed.contains(&id(package)));
    newest(ours)?.ok_or_else(|| format!("there is no package {FACADE}"))
}

fn newest<'a>(ours: impl Iterator<Item = &'a Value>) -> Result<Option<Version>> {
    let versions =
        ours.map(|package| rust_version(package).ok_or(format!("{} names no rust-version", package["name"])));
    Ok(versions.collect::<Result<Vec<_>>>()?.into_iter().max())
}

/// The features of the facade.
fn features(metadata: &Value) -> Result<Vec<String>> {
    let facade = packages(metadata).find(|package| package["name"] == FACADE);
    let features = facade.and_then(|facade| facade["features"].as_object());
    let features = features.ok_or_else(|| format!("{FACADE} has no features"))?;
    Ok(features.keys().filter(|feature| *feature != "default").cloned().collect())
}

/// The packages that need more than that.
fn too_new<'a>(packages: impl Iterator<Item = &'a Value>, promised: Version, who: &str) -> Vec<String> {
    let mut problems = Vec::new();
    for package in packages {
        if let Some(needed) = rust_version(package).filter(|needed| *needed > promised) {
            let (package, needed, promised) = (id(package), shown(needed), shown(promised));
            problems.push(format!("{who} promises Rust {promised}, but {package} needs {needed}"));
        }
    }
    problems
}

/// Those of the packages that are on this list.
fn among<'a>(metadata: &'a Value, list: &'a BTreeSet<String>) -> impl Iterator<Item = &'a Value> {
    packages(metadata).filter(|package| list.contains(&id(package)))
}

/// As `cargo tree` calls a package: `redis v1.8.1`.
fn id(package: &Value) -> String {
    let text = |field: &str| package[field].as_str().unwrap_or_default();
    format!("{} v{}", text("name"), text("version"))
}

/// What `lockwell` needs with these features and no others on this system, or `all`, as `cargo tree` calls it:
/// packages that build it included, without lockwell itself.
pub(crate) fn tree(features: &str, system: &str) -> Result<BTreeSet<String>> {
    let mut command = cargo();
    command.current_dir(root()).args(["tree", "--locked", "--package", FACADE]);
    command.args(["--features", features, "--target", system, "--edges", "normal,build"]);
    command.args(["--prefix", "none", "--format", "{p}"]);
    let shown = text(&mut command)?;
    let words = shown.lines().map(|line| line.split_whitespace().take(2).collect::<Vec<_>>().join(" "));
    Ok(words.filter(|package| !package.is_empty() && !package.starts_with("lockwell v")).collect())
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

    fn metadata() -> Value {
        json!({
            "workspace_members": ["ours", "tool", "slow"],
            "packages": [
                { "id": "ours", "name": "lockwell", "version": "0.1.0", "rust_version": "1.89", "source": null,
                  "features": { "default": ["slow"], "quick": [], "slow": [] } },
                { "id": "slow", "name": "slow", "version": "0.1.0", "rust_version": "1.94", "source": null },
                { "id": "tool", "name": "tool", "version": "0.1.0", "rust_version": "1.93", "source": null },
                { "id": "a", "name": "modest", "version": "1.0.0", "rust_version": "1.60", "source": "x" },
                { "id": "b", "name": "silent", "version": "1.0.0", "rust_version": null, "source": "x" },
                { "id": "c", "name": "greedy", "version": "2.0.0", "rust_version": "1.94.1", "source": "x" },
                { "id": "d", "name": "newer", "version": "1.0.0", "rust_version": "1.90", "source": "x" },
            ],
        })
    }

    fn list(packages: &[&str]) -> BTreeSet<String> {
        packages.iter().copied().map(str::to_owned).collect()
    }

    #[test]
    fn a_demanding_dependency_is_named() {
        let metadata = metadata();
        let promised = promised(&metadata).unwrap();
        assert_eq!(promised, (1, 94, 0));
        let problems = too_new(packages(&metadata), promised, "it");
        assert_eq!(problems, ["it promises Rust 1.94.0, but greedy v2.0.0 needs 1.94.1"]);
    }

    /// A version that the whole may need is not one that each feature may need.
    #[test]
    fn each_feature_is_held_to_what_it_brings() {
        let metadata = metadata();
        assert_eq!(features(&metadata).unwrap(), ["quick", "slow"]);
        let problems = |needed: &BTreeSet<String>| {
            let promise = promise_with(&metadata, needed).unwrap();
            too_new(among(&metadata, needed), promise, "it")
        };
        assert_eq!(problems(&list(&["modest v1.0.0", "silent v1.0.0"])), [""; 0]);
        let of_quick = problems(&list(&["newer v1.0.0"]));
        assert_eq!(of_quick, ["it promises Rust 1.89.0, but newer v1.0.0 needs 1.90.0"]);
        assert_eq!(problems(&list(&["newer v1.0.0", "slow v0.1.0"])), [""; 0]);
    }

    #[test]
    fn a_version_compiles_all_that_needs_no_newer_one() {
        let each = [("zk", (1, 85, 0)), ("redis", (1, 88, 0)), ("tls", (1, 85, 0))];
        let each = each.map(|(feature, version)| (feature.to_owned(), version));
        let expected = [((1, 85, 0), "zk,tls".to_owned()), ((1, 88, 0), "zk,redis,tls".to_owned())];
        assert_eq!(together(&each), BTreeMap::from(expected));
    }

    #[test]
    fn members_must_promise_something() {
        let metadata = json!({
            "workspace_members": ["a", "b"],
            "packages": [
                { "id": "a", "name": "a", "rust_version": "1.94" },
                { "id": "b", "name": "b", "rust_version": null },
            ],
        });
        assert!(promised(&metadata).unwrap_err().contains("\"b\" names no rust-version"));
    }
}
