//! `cargo xtask deny`: licences and sources of all dependencies, by the rules of `deny.toml`; and the
//! databases of known defects, where their tools and data are at hand.
//!
//! `cargo deny` checks more, but takes minutes to build and wants a network. So the two rules that a change
//! breaks most easily are checked here, from what Cargo knows, and `cargo deny` runs where it is installed.

use std::process::{Command, ExitCode};

use serde_json::Value;

use crate::shell::{Result, cargo, foreground, root, text};

/// What users install: the workspace, and that of the package for Python.
const WORKSPACES: [&str; 2] = ["Cargo.toml", "python/Cargo.toml"];

pub(crate) fn run() -> Result<ExitCode> {
    let rules = std::fs::read_to_string(root().join(".cargo/deny.toml"))
        .map_err(|error| format!("deny.toml: {error}"))?;
    let allowed = allowed(&rules)?;
    for workspace in WORKSPACES {
        let mut command = cargo();
        command.current_dir(root()).args(["metadata", "--format-version=1", "--all-features", "--locked"]);
        command.args(["--manifest-path", workspace]);
        let metadata: Value =
            serde_json::from_str(&text(&mut command)?).map_err(|error| error.to_string())?;
        let problems = problems(&metadata, &allowed);
        if !problems.is_empty() {
            return Err(problems.join("\n    "));
        }
        let packages = metadata["packages"].as_array().map_or(0, Vec::len);
        println!("{workspace}: the licences and sources of {packages} packages are as deny.toml wants them");
    }
    let outcome = denied()?;
    if outcome != ExitCode::SUCCESS {
        return Ok(outcome);
    }
    audited()
}

/// The rest of the rules, and the known defects, by cargo-deny.
fn denied() -> Result<ExitCode> {
    if !is_installed("cargo-deny") {
        println!("IGNORED: bans and known defects are not checked: cargo install cargo-deny --locked");
        return Ok(ExitCode::SUCCESS);
    }
    let rest = foreground(cargo().current_dir(root()).args([
        "deny",
        "--log-level",
        "error",
        "check",
        "bans",
        "licenses",
        "sources",
    ]))?;
    if rest != ExitCode::SUCCESS {
        return Ok(rest);
    }
    if has_folder("advisory-dbs") {
        return foreground(cargo().current_dir(root()).args(["deny", "--offline", "check", "advisories"]));
    }
    println!("IGNORED: there is no database of known defects on this machine: cargo deny fetch");
    Ok(ExitCode::SUCCESS)
}

/// The known defects of the packages in each Cargo.lock of the repository, by cargo-audit.
fn audited() -> Result<ExitCode> {
    if !is_installed("cargo-audit") {
        println!(
            "IGNORED: known defects are not looked for by cargo audit: cargo install cargo-audit --locked"
        );
        return Ok(ExitCode::SUCCESS);
    }
    if !has_folder("advisory-db") {
        println!(
            "IGNORED: cargo audit has no database of known defects on this machine: cargo audit fetches it"
        );
        return Ok(ExitCode::SUCCESS);
    }
    let mut git = Command::new("git");
    let locks = text(git.arg("-C").arg(root()).args(["ls-files", "--", "Cargo.lock", "*/Cargo.lock"]))?;
    for lock in locks.lines() {
        let found = foreground(cargo().current_dir(root()).args(["audit", "--no-fetch", "--file", lock]))?;
        if found != ExitCode::SUCCESS {
            return Ok(found);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn is_installed(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Whether this folder of Cargo has something in it, as after `cargo deny fetch`.
fn has_folder(name: &str) -> bool {
    let home = std::env::var_os("CARGO_HOME")
        .map(Into::into)
        .or_else(|| std::env::home_dir().map(|home| home.join(".cargo")));
    let folder = home.map(|home: std::path::PathBuf| home.join(name));
    folder
        .and_then(|folder| std::fs::read_dir(folder).ok())
        .is_some_and(|mut entries| entries.next().is_some())
}

/// The licences that `deny.toml` allows.
fn allowed(rules: &str) -> Result<Vec<String>> {
    let rules: toml::Table = rules.parse().map_err(|error| format!("deny.toml: {error}"))?;
    let listed = rules.get("licenses").and_then(|part| part.get("allow")).and_then(toml::Value::as_array);
    let listed = listed.ok_or("deny.toml has no licenses.allow")?;
    Ok(listed.iter().filter_map(toml::Value::as_str).map(str::to_owned).collect())
}

fn problems(metadata: &Value, allowed: &[String]) -> Vec<String> {
    let mut problems = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let field = |name: &str| package[name].as_str().unwrap_or_default();
        let name = format!("{} {}", field("name"), field("version"));
        if !is_allowed(field("license"), allowed) {
            problems.push(format!("{name} has the licence {:?}", field("license")));
        }
        // What has no source is in this repository.
        let source = package["source"].as_str();
        if source.is_some_and(|source| !source.starts_with("registry+")) {
            problems.push(format!("{name} comes from {}", source.unwrap_or_default()));
        }
    }
    problems
}

/// Whether this SPDX expression can be met with these licences. A slash is an old way to write OR.
fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<_> = spaced.split_whitespace().collect();
    let mut words = &words[..];
    any(&mut words, allowed) == Some(true) && words.is_empty()
}

/// `A OR B`. `None`: this is no expression.
fn any(words: &mut &[&str], allowed: &[String]) -> Option<bool> {
    let mut met = all(words, allowed)?;
    while let ["OR", rest @ ..] = *words {
        *words = rest;
        met |= all(words, allowed)?;
    }
    Some(met)
}

/// `A AND B`.
fn all(words: &mut &[&str], allowed: &[String]) -> Option<bool> {
    let mut met = one(words, allowed)?;
    while let ["AND", rest @ ..] = *words {
        *words = rest;
        met &= one(words, allowed)?;
    }
    Some(met)
}

/// A licence, also `WITH` an exception, or an expression in brackets.
fn one(words: &mut &[&str], allowed: &[String]) -> Option<bool> {
    let (first, rest) = words.split_first()?;
    *words = rest;
    if *first == "(" {
        let met = any(words, allowed)?;
        let [")", rest @ ..] = *words else { return None };
        *words = rest;
        return Some(met);
    }
    let mut licence = (*first).to_owned();
    if let ["WITH", exception, rest @ ..] = *words {
        licence = format!("{licence} WITH {exception}");
        *words = rest;
    }
    Some(allowed.contains(&licence))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn expressions() {
        let allowed = ["MIT", "Apache-2.0", "ISC"].map(str::to_owned);
        for good in [
            "MIT",
            "MIT OR GPL-3.0",
            "GPL-3.0/MIT",
            "MIT AND ISC",
            "(GPL-3.0 OR MIT) AND ISC",
            "GPL-3.0 WITH x OR (MIT AND (ISC OR BSL-1.0))",
        ] {
            assert!(is_allowed(good, &allowed), "{good}");
        }
        for bad in
            ["", "GPL-3.0", "MIT AND GPL-3.0", "(MIT", "MIT ISC", "Apache-2.0 WITH LLVM-exception", "OR MIT"]
        {
            assert!(!is_allowed(bad, &allowed), "{bad}");
        }
    }

    #[test]
    fn strange_licences_and_sources_are_named() {
        let metadata = json!({ "packages": [
            { "name": "ours", "version": "0.1.0", "license": "MIT OR Apache-2.0", "source": null },
            { "name": "good", "version": "1.0.0", "license": "MIT", "source": "registry+index" },
            { "name": "forked", "version": "1.0.0", "license": "MIT", "source": "git+somewhere" },
            { "name": "closed", "version": "2.0.0", "license": null, "source": "registry+index" },
        ]});
        let found = problems(&metadata, &["MIT".to_owned()]);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("forked 1.0.0 comes from git") && found[1].starts_with("closed 2.0.0"));
    }

    #[test]
    fn the_rules_are_read() {
        let rules = std::fs::read_to_string(root().join(".cargo/deny.toml")).unwrap();
        assert!(allowed(&rules).unwrap().contains(&"MIT".to_owned()));
        assert!(allowed("[licenses]").is_err());
    }
}
