//! `cargo xtask peers`: whether there are newer releases of the libraries that the comparison pins.

use std::fs;
use std::process::{Command, ExitCode};

use serde_json::Value;

use crate::msrv::parse;
use crate::shell::{Result, cargo, root, text};

/// Where the peers are: each in a folder of its own, and those in Rust in a workspace. Curator comes with the
/// system.
const PEERS: &str = "compare-bench/peers";

/// A library that is measured in one version.
#[derive(Debug, PartialEq, Eq)]
struct Pin {
    name: String,
    version: String,
    index: Index,
}

/// Where releases are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Index {
    Cargo,
    Pip,
    Npm,
}

pub(crate) fn run() -> Result<ExitCode> {
    for line in lines()? {
        println!("{line}");
    }
    Ok(ExitCode::SUCCESS)
}

/// The same before a comparison with them, which goes on in any case.
pub(crate) fn hint() {
    for line in lines().unwrap_or_else(|problem| vec![problem]) {
        eprintln!("xtask: {line}");
    }
}

fn lines() -> Result<Vec<String>> {
    Ok(all()?.iter().map(|pin| said(pin, newest(pin).as_deref())).collect())
}

/// Everything that is pinned.
fn all() -> Result<Vec<Pin>> {
    let mut all = pins(&metadata()?);
    let folder = root().join(PEERS);
    let problem = |error: std::io::Error| format!("{PEERS}: {error}");
    let mut folders: Vec<_> = fs::read_dir(&folder).map_err(problem)?.flatten().map(|it| it.path()).collect();
    folders.sort();
    for folder in folders {
        let text = |file: &str| fs::read_to_string(folder.join(file)).unwrap_or_default();
        all.extend(text("requirements.txt").lines().filter_map(required));
        if let Ok(package) = serde_json::from_str::<Value>(&text("package.json")) {
            all.extend(dependencies(&package));
        }
    }
    Ok(all)
}

/// A line `name==version`.
fn required(line: &str) -> Option<Pin> {
    let (name, version) = line.split_once("==")?;
    Some(Pin { name: name.trim().to_owned(), version: version.trim().to_owned(), index: Index::Pip })
}

/// What a `package.json` depends on.
fn dependencies(package: &Value) -> Vec<Pin> {
    let pinned = package["dependencies"].as_object().into_iter().flatten();
    let pin = |(name, version): (&String, &Value)| {
        Some(Pin { name: name.clone(), version: version.as_str()?.to_owned(), index: Index::Npm })
    };
    pinned.filter_map(pin).collect()
}

fn metadata() -> Result<Value> {
    let mut command = cargo();
    command.args(["metadata", "--format-version=1", "--no-deps", "--offline", "--manifest-path"]);
    let text = text(command.arg(root().join(PEERS).join("rust/Cargo.toml")))?;
    serde_json::from_str(&text).map_err(|error| error.to_string())
}

/// Whatever the workspace depends on in exactly one version.
fn pins(metadata: &Value) -> Vec<Pin> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let dependencies = packages.flat_map(|package| package["dependencies"].as_array().into_iter().flatten());
    let pinned = dependencies.filter_map(|dependency| {
        let version = dependency["req"].as_str()?.strip_prefix('=')?;
        Some(Pin {
            name: dependency["name"].as_str()?.to_owned(),
            version: version.trim().to_owned(),
            index: Index::Cargo,
        })
    });
    // Several packages may pin one library.
    pinned.fold(Vec::new(), |mut pins, pin| {
        if !pins.contains(&pin) {
            pins.push(pin);
        }
        pins
    })
}

/// The newest release that its index has. `None` if it cannot be asked.
fn newest(Pin { name, index, .. }: &Pin) -> Option<String> {
    match index {
        Index::Cargo => {
            let mut info = cargo();
            info.current_dir(root()).args(["info", "--quiet", "--color=never", name]);
            // Without a network it should not take long to find that out.
            info.env("CARGO_NET_RETRY", "0").env("CARGO_HTTP_TIMEOUT", "10");
            released(&text(&mut info).ok()?)
        }
        Index::Pip => {
            let mut versions = Command::new("python3");
            versions.args(["-m", "pip", "--retries", "0", "--timeout", "10", "--disable-pip-version-check"]);
            in_brackets(&text(versions.args(["index", "versions", name])).ok()?)
        }
        Index::Npm => {
            let mut view = Command::new("npm");
            view.args(["view", "--fetch-retries=0", "--fetch-timeout=10000", name, "version"]);
            Some(text(&mut view).ok()?.trim().to_owned()).filter(|version| !version.is_empty())
        }
    }
}

/// What `pip index versions` says first: `redis (8.1.0)`.
fn in_brackets(versions: &str) -> Option<String> {
    let version = versions.lines().next()?.split_once('(')?.1.split(')').next()?;
    Some(version.to_owned())
}

/// What `cargo info` says: `version: 1.8.1`, or `version: 1.8.1 (latest 2.0.0-rc.2)`. It chooses one that
/// this Rust can build; the latest may be one that is not released yet.
fn released(info: &str) -> Option<String> {
    let line = info.lines().find_map(|line| line.strip_prefix("version: "))?;
    let chosen = line.split(' ').next()?;
    let latest = line.split_once("(latest ").and_then(|(_, rest)| rest.split([' ', ')']).next());
    let latest = latest.filter(|version| !version.contains('-'));
    Some(latest.unwrap_or(chosen).to_owned())
}

fn said(Pin { name, version, .. }: &Pin, newest: Option<&str>) -> String {
    match newest {
        None => format!("{name} {version}: newer releases could not be looked up"),
        Some(newest) if parse(newest) > parse(version) => {
            format!("{name} {version}: there is a newer release, {newest}")
        }
        Some(_) => format!("{name} {version}: there is no newer release"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pin(name: &str, version: &str) -> Pin {
        Pin { name: name.to_owned(), version: version.to_owned(), index: Index::Cargo }
    }

    #[test]
    fn what_is_pinned_exactly_is_found() {
        let metadata = json!({ "packages": [
            { "name": "one", "dependencies": [
                { "name": "a", "req": "=0.10.0" }, { "name": "tokio", "req": "^1.54" }, { "name": "own", "req": "*" },
            ] },
            { "name": "two", "dependencies": [{ "name": "b", "req": "= 1.2.3" }] },
            { "name": "three", "dependencies": [] },
        ] });
        assert_eq!(pins(&metadata), [pin("a", "0.10.0"), pin("b", "1.2.3")]);
    }

    #[test]
    fn the_comparison_pins_its_peers() {
        let pins = all().unwrap();
        let mut names: Vec<_> = pins.iter().map(|pin| &*pin.name).collect();
        names.sort_unstable();
        let pinned = [
            "distributed-lock",
            "etcd-client",
            "fs4",
            "ioredis",
            "kazoo",
            "redis",
            "redlock",
            "rslock",
            "sqlx",
        ];
        assert_eq!(names, pinned);
        assert!(pins.iter().all(|pin| parse(&pin.version).is_some()), "{pins:?}");
    }

    #[test]
    fn the_newest_release_is_read() {
        let info =
            |version: &str| format!("redis #redis #valkey\nA driver.\nversion: {version}\nlicense: MIT\n");
        assert_eq!(released(&info("0.10.0")).as_deref(), Some("0.10.0"));
        assert_eq!(released(&info("1.40.0 (latest 1.54.1)")).as_deref(), Some("1.54.1"));
        assert_eq!(released(&info("1.40.0 (latest 1.54.1 from elsewhere)")).as_deref(), Some("1.54.1"));
        assert_eq!(released(&info("1.8.1 (latest 2.0.0-rc.2)")).as_deref(), Some("1.8.1"));
        assert_eq!(released("error: no network\n"), None);
        assert_eq!(released(""), None);
    }

    #[test]
    fn other_indexes_are_read() {
        let pin = required("redis==8.1.0 ").unwrap();
        assert_eq!((&*pin.name, &*pin.version, pin.index), ("redis", "8.1.0", Index::Pip));
        assert_eq!(required("redis"), None);
        let package = json!({ "dependencies": { "ioredis": "5.1.0" } });
        assert_eq!(dependencies(&package)[0].version, "5.1.0");
        assert_eq!(
            in_brackets("redis (8.1.0)\nAvailable versions: 8.1.0, 8.0.0\n").as_deref(),
            Some("8.1.0")
        );
        assert_eq!(in_brackets(""), None);
    }

    #[test]
    fn only_a_newer_release_is_called_newer() {
        let said = |newest| said(&pin("a", "0.10.0"), newest);
        assert_eq!(said(Some("0.11.0")), "a 0.10.0: there is a newer release, 0.11.0");
        assert_eq!(said(Some("0.10.0")), "a 0.10.0: there is no newer release");
        // By number, not by letter; and a release may have been taken back.
        assert_eq!(said(Some("0.9.9")), "a 0.10.0: there is no newer release");
        assert_eq!(said(None), "a 0.10.0: newer releases could not be looked up");
    }
}
