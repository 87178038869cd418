//! `cargo xtask compare`: the comparison, in release; the quick one without link-time optimisation.

use std::process::ExitCode;

use testbed::Release;

use crate::install::{is_told, provide};
use crate::packages::{Package, SERVERS};
use crate::shell::{Result, cargo, foreground};

pub(crate) fn run(mut args: Vec<String>) -> Result<ExitCode> {
    let told = is_told(&mut args);
    let newer = NEWER.iter().filter(|(backend, _)| starts(backend, &args) == Some(true));
    let newer = newer.map(|(_, release)| Release::named(release));
    // The comparison names the backends that it leaves out.
    drop(provide(SERVERS.iter().filter(|server| is_needed(server, &args)), newer, false, told));
    let profile = profile(&args);
    // The comparison says which one it is.
    let mut cargo = cargo();
    cargo.env("LOCKWELL_COMPARE_PROFILE", profile).args([
        "run",
        "--profile",
        profile,
        "--package",
        "compare-bench",
        "--",
    ]);
    foreground(cargo.args(&args))
}

/// How it is built: see Cargo.toml. What only shows results is not worth the minutes of link-time
/// optimisation.
fn profile(args: &[String]) -> &'static str {
    let shows = args.first().is_some_and(|word| MEASURE_NOTHING.contains(&&**word));
    if shows || args.iter().any(|arg| arg == "--quick") { "quick" } else { "release" }
}

/// The commands of the comparison that look at what was measured.
const MEASURE_NOTHING: [&str; 4] = ["render", "diff", "figures", "help"];

/// Backends on releases that no machine has installed.
const NEWER: [(&str, &str); 2] = [("mysql", "mysql9"), ("valkey", "valkey9")];

/// Whether a comparison with these arguments starts that server.
fn is_needed(server: &Package, args: &[String]) -> bool {
    starts(server.gives, args).unwrap_or(server.gives != "etcd")
}

/// Whether these arguments make a comparison start that backend; `None` if they leave the choice to it.
fn starts(backend: &str, args: &[String]) -> Option<bool> {
    let starts_none = ["--url", "--list", "--help", "-h", "--version", "-V"];
    if args.first().is_some_and(|word| MEASURE_NOTHING.contains(&&**word)) {
        return Some(false);
    }
    let named = |arg: &String, name: &str| arg == name || arg.starts_with(&format!("{name}="));
    if args.iter().any(|arg| starts_none.iter().any(|name| named(arg, name))) {
        return Some(false);
    }
    let chosen: Vec<_> = args
        .iter()
        .enumerate()
        .filter(|(_, arg)| named(arg, "--backend"))
        .filter_map(|(at, arg)| {
            arg.split_once('=').map(|(_, value)| value).or(args.get(at + 1).map(|s| &**s))
        })
        .flat_map(|value| value.split(','))
        .collect();
    if chosen.is_empty() {
        // The full run has all of them.
        return args.iter().any(|arg| arg == "--full").then_some(true);
    }
    Some(chosen.into_iter().map(gives).any(|name| name == backend))
}

/// The server behind a backend: compare-bench knows some by two names, and has several backends on some.
fn gives(backend: &str) -> &str {
    match backend {
        "redlock" | "redlock3" | "sentinel" | "cluster" => "redis",
        "zk" | "zookeeper3" | "zookeeper3-leader" => "zookeeper",
        "postgres-grace" => "postgres",
        "etcd3" => "etcd",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needed(line: &str) -> Vec<&'static str> {
        let args: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
        SERVERS.iter().filter(|server| is_needed(server, &args)).map(|server| server.gives).collect()
    }

    #[test]
    fn the_quick_run_is_built_quickly() {
        let built = |line: &str| profile(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!((built("--quick --tmpfs"), built("--full"), built("")), ("quick", "release", "release"));
        assert_eq!((built("render a.json"), built("diff a.json b.json")), ("quick", "quick"));
        let manifest = std::fs::read_to_string(crate::shell::root().join("Cargo.toml")).unwrap();
        let manifest: toml::Table = manifest.parse().unwrap();
        let quick = &manifest["profile"]["quick"];
        assert_eq!((quick["inherits"].as_str(), quick["lto"].as_str()), (Some("release"), Some("off")));
    }

    #[test]
    fn newer_releases_are_fetched_when_they_are_asked_for() {
        let starts = |line: &str| {
            let args: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
            NEWER.iter().filter(|(backend, _)| starts(backend, &args) == Some(true)).count()
        };
        assert_eq!(starts(""), 0);
        assert_eq!((starts("--full"), starts("--full --backend redis"), starts("--full --list")), (2, 0, 0));
        assert_eq!((starts("--backend redis,valkey"), starts("--backend=mysql,valkey")), (1, 2));
    }

    #[test]
    fn only_servers_that_will_be_started_are_needed() {
        assert_eq!(needed(""), ["postgres", "mariadb", "redis", "zookeeper"]);
        assert_eq!(needed("--quick --tmpfs"), ["postgres", "mariadb", "redis", "zookeeper"]);
        assert_eq!(needed("--full"), ["postgres", "mariadb", "redis", "zookeeper", "etcd"]);
        assert_eq!(needed("--backend postgres,memory"), ["postgres"]);
        assert_eq!(needed("--backend etcd3,postgres-grace"), ["postgres", "etcd"]);
        assert_eq!(needed("--backend=mariadb --quick"), ["mariadb"]);
        assert!(needed("--backend mysql,valkey").is_empty(), "they are fetched");
        assert_eq!(needed("--backend redlock,zookeeper3"), ["redis", "zookeeper"]);
        assert_eq!(needed("--backend cluster,zookeeper3-leader"), ["redis", "zookeeper"]);
        for none in [
            "--url memory://",
            "--url=memory://",
            "--list",
            "--help",
            "--backend sqlite",
            "render a.json",
            "diff a.json b.json",
        ] {
            assert!(needed(none).is_empty(), "{none}");
        }
    }
}
