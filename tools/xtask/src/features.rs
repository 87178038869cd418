//! What a feature of `lockwell` brings: the packages that it needs, none that only another backend needs, and none that
//! takes a newer Rust than the packages promise.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

use crate::shell::{cargo, root, text};

/// One system, since dependencies differ from system to system.
const SYSTEM: &str = "x86_64-unknown-linux-gnu";

/// Features as an application chooses them.
const CHOICES: [&str; 11] = [
    "",
    "sqlite",
    "sqlite-unbundled",
    "postgres",
    "mysql",
    "redis",
    "zk",
    "etcd",
    "metrics",
    "postgres,redis,tls",
    "postgres,mysql,sqlite,redis,zk,etcd,tls,sasl",
];

/// Packages that only these features may bring.
const OWN: [(&[&str], &[&str]); 8] = [
    (&["sqlite", "sqlite-unbundled"], &["libsqlite3-sys", "sqlx-sqlite", "notify"]),
    (&["postgres"], &["sqlx-postgres"]),
    (&["mysql"], &["sqlx-mysql"]),
    (&["redis"], &["redis", "lockwell-redis"]),
    (&["zk"], &["zookeeper-client", "lockwell-zk"]),
    (&["etcd"], &["tonic", "prost", "lockwell-etcd"]),
    (&["tls"], &["rustls"]),
    (&["metrics"], &["metrics"]),
];

/// The packages that `lockwell` needs with these features, those that build it included, as `name v1.2.3`.
fn tree(features: &str, system: &str) -> BTreeSet<String> {
    let mut command = cargo();
    command.current_dir(root()).args(["tree", "--locked", "--package", "lockwell", "--prefix", "none"]);
    command.args(["--features", features, "--target", system, "--edges", "normal,build", "--format", "{p}"]);
    let shown = text(&mut command).expect("a tree");
    shown.lines().map(|line| line.split_whitespace().take(2).collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn no_backend_brings_what_only_another_needs() {
    for choice in CHOICES {
        let tree = tree(choice, SYSTEM);
        for (owners, names) in OWN {
            let is_chosen = choice.split(',').any(|feature| owners.contains(&feature));
            for name in names {
                let is_there = tree.iter().any(|package| package.split(' ').next() == Some(name));
                // One that is not there at all may be called otherwise now.
                assert_eq!(is_there, is_chosen, "{name} with the features {choice:?}");
            }
        }
    }
}

/// A package of this metadata, as `cargo tree` calls it; the Rust that it needs, and whether it is ours.
fn package(package: &Value) -> (String, (Option<(u32, u32)>, bool)) {
    let word = |field: &str| package[field].as_str().unwrap_or_default();
    let mut numbers = word("rust_version").split('.').map_while(|number| number.parse().ok());
    let version = numbers.next().zip(Some(numbers.next().unwrap_or(0)));
    (format!("{} v{}", word("name"), word("version")), (version, package["source"].is_null()))
}

/// Cargo's resolver only warns where it finds no release that an older Rust can compile.
#[test]
fn no_feature_needs_a_newer_rust_than_the_packages_promise() {
    let mut command = cargo();
    command.current_dir(root()).args(["metadata", "--format-version=1", "--all-features", "--locked"]);
    let metadata: Value = serde_json::from_str(&text(&mut command).expect("metadata")).expect("JSON");
    let all = || metadata["packages"].as_array().expect("packages").iter();
    let known: BTreeMap<_, _> = all().map(package).collect();
    let facade = all().find(|package| package["name"] == "lockwell").expect("the facade");
    let features: Vec<_> = facade["features"].as_object().expect("features").keys().collect();
    assert!(features.len() > 8, "{features:?}");
    for feature in features {
        // These two change what others bring, and are nothing alone.
        let tree = tree(&format!("{feature},tls,sasl"), "all");
        let needed: Vec<_> = tree.iter().filter_map(|name| Some((name, known.get(name)?))).collect();
        let ours = needed.iter().filter(|(_, (_, is_ours))| *is_ours);
        let promised =
            ours.map(|(name, (version, _))| version.unwrap_or_else(|| panic!("{name} promises nothing")));
        let promised = promised.max().expect("ours");
        for (name, (version, _)) in needed {
            assert!(
                version.is_none_or(|it| it <= promised),
                "{feature}: {name} needs {version:?}, not {promised:?}"
            );
        }
    }
}

/// Rust 1.88 is the first that takes them, and clippy does not know it.
#[test]
fn no_package_for_an_older_rust_has_chains_of_let() {
    for folder in ["lockcore", "backend-zk", "conformance", "."] {
        let manifest = std::fs::read_to_string(root().join(folder).join("Cargo.toml")).expect("a manifest");
        assert!(manifest.contains("\nrust-version = \"1.85\"\n"), "{folder} may have them now");
        let mut list = Command::new("git");
        let files =
            text(list.current_dir(root().join(folder)).args(["ls-files", "src/*.rs"])).expect("files");
        for file in files.lines() {
            let code = std::fs::read_to_string(root().join(folder).join(file)).expect("a file");
            let lines: Vec<_> = code.lines().map(str::trim).collect();
            for (at, pair) in lines.windows(2).enumerate() {
                let chained = pair[0].contains("&& let ")
                    || pair[0].contains("if let ")
                        && (pair[1].starts_with("&& ") || pair[0].contains(" && ") && !pair[0].contains('|'));
                assert!(!chained, "{folder}/{file}:{}: {}", at + 1, pair[0]);
            }
        }
    }
}

/// Cargo lets one package of a graph link SQLite, and counts those that an optional dependency could bring. So a backend
/// that needs no SQLite must leave the application the choice.
#[test]
fn postgres_leaves_the_application_its_sqlite() {
    let folder = tempfile::tempdir().expect("a folder");
    let manifest = format!(
        "[package]\nname = \"application\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[lib]\npath = \"lib.rs\"\n\
         [dependencies]\nlockwell = {{ path = \"{}\", features = [\"postgres\", \"mysql\", \"redis\"] }}\n",
        root().display(),
    );
    std::fs::write(folder.path().join("Cargo.toml"), manifest).expect("written");
    std::fs::write(folder.path().join("lib.rs"), "").expect("written");
    text(cargo().current_dir(&folder).args(["generate-lockfile", "--offline"])).expect("versions");
    let chosen = std::fs::read_to_string(folder.path().join("Cargo.lock")).expect("the lock file");
    assert!(chosen.contains("\"sqlx-postgres\"") && !chosen.contains("\"libsqlite3-sys\""), "{chosen}");
}
