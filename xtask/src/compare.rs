//! `cargo xtask compare`: the comparison, in release.

use std::process::ExitCode;

use crate::install::{allowed, ensure};
use crate::packages::{Package, SERVERS};
use crate::peers;
use crate::shell::{Result, cargo, foreground};

pub(crate) fn run(mut args: Vec<String>) -> Result<ExitCode> {
    let allowed = allowed(&mut args);
    if args.iter().any(|arg| arg == "--peers") {
        peers::hint();
    }
    ensure(SERVERS.iter().filter(|server| is_needed(server, &args)), allowed);
    foreground(cargo().args(["run", "--release", "--package", "compare-bench", "--"]).args(&args))
}

/// The commands of the comparison that look at what was measured.
const MEASURE_NOTHING: [&str; 4] = ["render", "diff", "schema", "help"];

/// Whether a comparison with these arguments starts that server.
fn is_needed(server: &Package, args: &[String]) -> bool {
    let starts_none = ["--url", "--list", "--help", "-h", "--version", "-V"];
    if args.first().is_some_and(|word| MEASURE_NOTHING.contains(&&**word)) {
        return false;
    }
    let named = |arg: &String, name: &str| arg == name || arg.starts_with(&format!("{name}="));
    if args.iter().any(|arg| starts_none.iter().any(|name| named(arg, name))) {
        return false;
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
    chosen.is_empty() || chosen.into_iter().map(gives).any(|name| name == server.gives)
}

/// The server behind a backend: compare-bench knows some by two names, and has two backends on some.
fn gives(backend: &str) -> &str {
    match backend {
        "mysql" => "mariadb",
        "redlock" => "redis",
        "zk" | "zookeeper3" => "zookeeper",
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
    fn only_servers_that_will_be_started_are_needed() {
        assert_eq!(needed(""), ["postgres", "mariadb", "redis", "zookeeper"]);
        assert_eq!(needed("--quick --tmpfs"), ["postgres", "mariadb", "redis", "zookeeper"]);
        assert_eq!(needed("--backend postgres,memory"), ["postgres"]);
        assert_eq!(needed("--backend=mysql --quick"), ["mariadb"]);
        assert_eq!(needed("--backend redlock,zookeeper3"), ["redis", "zookeeper"]);
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
