//! `cargo xtask compare`: the comparison, in release.

use std::process::ExitCode;

use crate::install::{allowed, ensure};
use crate::packages::{Server, in_use};
use crate::shell::{Result, cargo, foreground};

pub(crate) fn run(mut args: Vec<String>) -> Result<ExitCode> {
    let allowed = allowed(&mut args);
    let needed: Vec<_> = in_use().filter(|server| is_needed(server, &args)).collect();
    ensure(&needed, allowed);
    foreground(cargo().args(["run", "--release", "--package", "compare-bench", "--"]).args(&args))
}

/// Whether a comparison with these arguments starts that server.
fn is_needed(server: &Server, args: &[String]) -> bool {
    let starts_none = ["--url", "--list", "--help", "-h", "--version", "-V"];
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
    // compare-bench knows MariaDB by two names, and has two backends on Redis.
    let is_it = |name: &&str| {
        *name == server.backend
            || matches!((*name, server.backend), ("mysql", "mariadb") | ("redlock", "redis"))
    };
    chosen.is_empty() || chosen.iter().any(is_it)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needed(line: &str) -> Vec<&'static str> {
        let args: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
        in_use().filter(|server| is_needed(server, &args)).map(|server| server.backend).collect()
    }

    #[test]
    fn only_servers_that_will_be_started_are_needed() {
        assert_eq!(needed(""), ["postgres", "mariadb", "redis"]);
        assert_eq!(needed("--quick --tmpfs"), ["postgres", "mariadb", "redis"]);
        assert_eq!(needed("--backend postgres,memory"), ["postgres"]);
        assert_eq!(needed("--backend=mysql --quick"), ["mariadb"]);
        assert_eq!(needed("--backend redlock"), ["redis"]);
        for none in ["--url memory://", "--url=memory://", "--list", "--help", "--backend sqlite"] {
            assert!(needed(none).is_empty(), "{none}");
        }
    }
}
