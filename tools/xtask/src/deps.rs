//! `cargo xtask deps`: how many packages each feature brings, and how long it takes to compile, as a table in
//! the documentation.
//!
//! With `--check` it writes nothing, and fails where the table has another number of packages, so that a new
//! dependency is seen in the change that brings it. Either way it fails where one backend brings what only
//! another needs. The times stay as they are, unless `--measure` asks for new ones.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::process::ExitCode;

use crate::shell::{Result, cargo, root, text};

const FILE: &str = "docs/choosing.md";
const BEGIN: &str = "<!-- dependencies: cargo xtask deps -->\n";
const END: &str = "<!-- end of dependencies -->\n";

/// One system for all counts, since dependencies differ from system to system.
const SYSTEM: &str = "x86_64-unknown-linux-gnu";

/// Features as an application chooses them, and their names in the table.
const CHOICES: [(&str, &str); 16] = [
    ("", "none: `memory://`"),
    ("sqlite", "`sqlite`"),
    ("sqlite-unbundled", "`sqlite-unbundled`"),
    ("postgres", "`postgres`"),
    ("mysql", "`mysql`"),
    ("redis", "`redis`"),
    ("zk", "`zk`"),
    ("etcd", "`etcd`"),
    ("postgres,tls", "`postgres`, `tls`"),
    ("mysql,tls", "`mysql`, `tls`"),
    ("redis,tls", "`redis`, `tls`"),
    ("zk,tls", "`zk`, `tls`"),
    ("etcd,tls", "`etcd`, `tls`"),
    ("zk,sasl", "`zk`, `sasl`"),
    ("metrics", "`metrics`"),
    ("postgres,mysql,sqlite,redis,zk,etcd,tls,sasl", "all"),
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

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Write nothing, and fail if the documentation is out of date.
    #[arg(long, conflicts_with = "measure")]
    check: bool,
    /// Compile each choice from nothing, which takes a quarter of an hour, and write the processor time of
    /// that.
    #[arg(long)]
    measure: bool,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let mut trees = Vec::new();
    for (features, title) in CHOICES {
        trees.push((features, title, tree(features, SYSTEM)?));
    }
    let unexpected_packages: Vec<_> =
        trees.iter().flat_map(|(features, _, tree)| unexpected_packages(features, tree)).collect();
    if !unexpected_packages.is_empty() {
        return Err(unexpected_packages.join("; "));
    }
    let path = root().join(FILE);
    let problem = |error| format!("{FILE}: {error}");
    let old = fs::read_to_string(&path).map_err(problem)?;
    let mut times = times(&old);
    if options.measure {
        for (features, title) in CHOICES {
            let seconds = compiled(features)?;
            println!("{title}: {seconds} s");
            times.insert(title.to_owned(), seconds.to_string());
        }
    }
    let new = filled(&old, &table(&trees, &times))?;
    if new == old {
        println!(
            "{FILE} has the number of dependencies of each feature, and no backend brings what another needs"
        );
    } else if options.check {
        return Err(format!("{FILE} has other numbers of dependencies than the features: cargo xtask deps"));
    } else {
        fs::write(&path, new).map_err(problem)?;
        println!("{FILE}");
    }
    Ok(ExitCode::SUCCESS)
}

/// The packages that `lockwell` needs with these features and no others on this system, or `all`: those that
/// build it included.
pub(crate) fn tree(features: &str, system: &str) -> Result<BTreeSet<String>> {
    let mut command = cargo();
    command.current_dir(root()).args(["tree", "--locked", "--package", "lockwell"]);
    command.args(["--features", features, "--target", system, "--edges", "normal,build"]);
    command.args(["--prefix", "none", "--format", "{p}"]);
    Ok(packages(&text(&mut command)?))
}

/// The names and versions in the output of `cargo tree`, without lockwell itself.
fn packages(tree: &str) -> BTreeSet<String> {
    let words = tree.lines().map(|line| line.split_whitespace().take(2).collect::<Vec<_>>().join(" "));
    words.filter(|package| !package.is_empty() && !package.starts_with("lockwell v")).collect()
}

fn is_there(name: &str, tree: &BTreeSet<String>) -> bool {
    tree.iter().any(|package| package.split(' ').next() == Some(name))
}

/// Packages that these features bring and should not.
fn unexpected_packages(features: &str, tree: &BTreeSet<String>) -> Vec<String> {
    let chosen: Vec<_> = features.split(',').collect();
    let is_chosen = |owners: &[&str]| owners.iter().any(|owner| chosen.contains(owner));
    let others = OWN.iter().filter(|(owners, _)| !is_chosen(owners));
    let found = others.flat_map(|(owners, names)| {
        let names = names.iter().filter(move |name| is_there(name, tree));
        names.map(move |name| format!("{features:?} brings {name}, which only {:?} needs", owners[0]))
    });
    let missing = OWN.iter().filter(|(owners, _)| is_chosen(owners)).flat_map(|(owners, names)| {
        let names = names.iter().filter(move |name| !is_there(name, tree));
        names.map(move |name| format!("{:?} does not bring {name}: is it called otherwise now?", owners[0]))
    });
    found.chain(missing).collect()
}

/// The processor time in seconds of an unoptimised build of the library, from nothing.
fn compiled(features: &str) -> Result<u64> {
    let folder = root().join("target/measured");
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    let before = of_children()?;
    let mut command = cargo();
    command.current_dir(root()).args(["build", "--locked", "--package", "lockwell", "--lib"]);
    command.args(["--features", features, "--target-dir"]).arg(&folder);
    text(&mut command)?;
    Ok((of_children()? - before).div_ceil(TICKS))
}

/// In a second, on every Linux.
const TICKS: u64 = 100;

/// The processor time of all processes that have ended below this one, in ticks.
fn of_children() -> Result<u64> {
    let stat = fs::read_to_string("/proc/self/stat").map_err(|error| format!("/proc/self/stat: {error}"))?;
    // The name before the bracket may have any characters; cutime and cstime are the 16th and 17th field.
    let fields = stat.rsplit_once(") ").map(|(_, fields)| fields.split(' ').skip(13).take(2));
    let ticks = fields.and_then(|fields| fields.map(|ticks| ticks.parse::<u64>().ok()).sum::<Option<u64>>());
    ticks.ok_or_else(|| format!("what does {stat:?} mean?"))
}

/// The times in the table of this text, by the title of the row.
fn times(text: &str) -> BTreeMap<String, String> {
    let table = text.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END));
    let rows = table.map_or("", |(table, _)| table).lines();
    let cells = rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>());
    cells.filter(|cells| cells.len() == 4).map(|cells| (cells[0].to_owned(), cells[3].to_owned())).collect()
}

fn table(trees: &[(&str, &str, BTreeSet<String>)], times: &BTreeMap<String, String>) -> String {
    let none = trees.iter().find(|(features, _, _)| features.is_empty()).map_or(0, |(_, _, tree)| tree.len());
    let mut table = "| features | packages | beyond none | seconds |\n|---|---|---|---|\n".to_owned();
    for (_, title, tree) in trees {
        let seconds = times.get(*title).map_or("", String::as_str);
        // Writing to a text does not fail.
        writeln!(table, "| {title} | {} | {} | {seconds} |", tree.len(), tree.len().saturating_sub(none))
            .unwrap_or_default();
    }
    table
}

/// The text with this table between the two comments.
fn filled(text: &str, table: &str) -> Result<String> {
    let (before, rest) = text.split_once(BEGIN).ok_or_else(|| format!("{FILE} has no line {BEGIN}"))?;
    let (_, after) = rest.split_once(END).ok_or_else(|| format!("{FILE} has no line {END}"))?;
    Ok(format!("{before}{BEGIN}{table}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: &str = "lockwell v0.1.0 (/src)\nredis v1.8.1\nlockwell-redis v0.1.0 (/src/backend-redis)\n\
                        tokio v1.54.0\ntokio v1.54.0 (*)\nsqlx-mysql v0.9.0\n";

    #[test]
    fn packages_count_once() {
        let tree = packages(TREE);
        assert_eq!(tree.len(), 4, "{tree:?}");
        let text =
            format!("{BEGIN}| features | packages | beyond none | seconds |\n| none | 3 | 0 | 17 |\n{END}");
        let table = table(&[("", "none", BTreeSet::new()), ("redis", "`redis`", tree)], &times(&text));
        assert!(table.ends_with("| none | 0 | 0 | 17 |\n| `redis` | 4 | 4 |  |\n"), "{table}");
    }

    #[test]
    fn what_another_backend_needs_is_found() {
        let tree = packages(TREE);
        assert_eq!(
            unexpected_packages("redis", &tree),
            ["\"redis\" brings sqlx-mysql, which only \"mysql\" needs"]
        );
        assert_eq!(unexpected_packages("redis,mysql", &tree).len(), 0);
        let problems = unexpected_packages("redis,mysql,zk", &tree);
        assert!(problems.iter().all(|one| one.contains("zk")) && problems.len() == 2, "{problems:?}");
    }

    #[test]
    fn the_table_stands_between_its_comments() {
        let text = format!("a\n{BEGIN}old\n{END}b\n");
        assert_eq!(filled(&text, "new\n").unwrap(), format!("a\n{BEGIN}new\n{END}b\n"));
        assert!(filled("a", "new\n").is_err());
    }
}
