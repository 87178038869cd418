//! `cargo xtask compare`: the comparison, in release; the quick one without link-time optimisation.

use std::process::ExitCode;

use testbed::Release;

use crate::install::{is_told, provide};
use crate::packages::SERVERS;
use crate::shell::{Result, cargo, foreground};

pub(crate) fn run(mut args: Vec<String>) -> Result<ExitCode> {
    // Otherwise the comparison names the backends that it leaves out, and says how they are had.
    if is_told(&mut args) {
        drop(provide(&SERVERS, NEWER.map(Release::named), false, true));
    }
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

/// Releases that no machine has installed.
const NEWER: [&str; 2] = ["mysql9", "valkey9"];

#[cfg(test)]
mod tests {
    use super::*;

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
}
