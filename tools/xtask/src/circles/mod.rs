//! `cargo xtask circles`: no two files import each other in a circle.
//!
//! A file that can be read only together with another one is no file of its own. Imports are read from the
//! source: `use` declarations, and paths in the code. What is for tests alone does not count.

mod imports;
mod modules;

use std::collections::BTreeMap;
use std::process::ExitCode;

use petgraph::algo::tarjan_scc;
use petgraph::graphmap::DiGraphMap;

use self::imports::edges;
use self::modules::{Module, modules};
use crate::shell::{Result, root};

/// The packages.
const PACKAGES: [&str; 14] = [
    ".",
    "backend-etcd",
    "backend-redis",
    "backend-sql",
    "backend-zk",
    "cli",
    "compare-bench",
    "examples/backend-tarantool",
    "faults",
    "lockcore",
    "proxy",
    "python",
    "testbed",
    "xtask",
];

/// Circles that are meant, and why.
const MEANT: [(&str, [&str; 2], &str); 1] = [(
    "lockcore",
    ["contract/error.rs", "contract/name.rs"],
    "an error names the lock that it is about, and a name that is not allowed is an error",
)];

pub(crate) fn run() -> Result<ExitCode> {
    let mut wrong = 0;
    for package in PACKAGES {
        let found = circles(&modules(&root().join(package).join("src"))?);
        let meant: Vec<_> = MEANT
            .iter()
            .filter(|(of, _, _)| *of == package)
            .map(|(_, files, _)| files.map(str::to_owned).to_vec())
            .collect();
        for circle in found.iter().filter(|circle| !meant.contains(*circle)) {
            println!("{package}: {}", circle.join(", "));
            wrong += 1;
        }
        // A circle that does not exist any more must not stay in the list.
        for files in meant.iter().filter(|files| !found.contains(*files)) {
            println!("{package}: {} are no circle any more: remove them from MEANT", files.join(", "));
            wrong += 1;
        }
    }
    for (package, files, why) in MEANT {
        println!("{package}: {} are meant: {why}", files.join(", "));
    }
    if wrong == 0 { Ok(ExitCode::SUCCESS) } else { Err(format!("{wrong} circles of files")) }
}

/// The names of the files of each circle.
fn circles(modules: &[Module]) -> Vec<Vec<String>> {
    let mut graph = DiGraphMap::<&str, ()>::new();
    for (from, to) in edges(modules) {
        graph.add_edge(&modules[from].file, &modules[to].file, ());
    }
    let found = tarjan_scc(&graph).into_iter().filter(|files| files.len() > 1);
    let named = found.map(|files| files.into_iter().map(str::to_owned).collect::<Vec<_>>());
    // By the first of their names, so that two runs print the same.
    let mut sorted: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for mut files in named {
        files.sort();
        sorted.insert(files[0].clone(), files);
    }
    sorted.into_values().collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        circles(&modules(folder.path()).unwrap())
    }

    #[test]
    fn a_circle_is_found_whatever_its_form() {
        let lib = ("lib.rs", "mod a; mod b;");
        for a in [
            "use crate::b::Two; pub struct One(Two);",
            "use crate::b; pub struct One(b::Two);",
            "pub struct One(crate::b::Two);",
            "pub struct One(super::b::Two);",
            "use super::{b as c}; pub struct One(c::Two);",
        ] {
            let circle = found(&[lib, ("a.rs", a), ("b.rs", "use crate::a::One; pub struct Two(Box<One>);")]);
            assert_eq!(circle, [["a.rs", "b.rs"]], "{a}");
        }
    }

    #[test]
    fn a_re_export_leads_to_where_a_thing_is() {
        let lib = ("lib.rs", "mod a; mod b; mod c;");
        let circle = found(&[
            lib,
            ("a.rs", "use crate::b::Two; pub struct One(Two);"),
            ("b.rs", "pub use crate::c::Two;"),
            ("c.rs", "use crate::a::One; pub struct Two(Box<One>);"),
        ]);
        assert_eq!(circle, [["a.rs", "c.rs"]]);
    }

    #[test]
    fn what_is_for_tests_does_not_count() {
        let none: [[&str; 0]; 0] = [];
        let files = [
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "pub struct One; #[cfg(test)] mod tests { use crate::b::Two; }"),
            ("b.rs", "use crate::a::One; pub struct Two(One);"),
        ];
        assert_eq!(found(&files), none);
        let files = [
            ("lib.rs", "mod a; mod b;"),
            ("a/mod.rs", "pub struct One; #[cfg(test)] mod tests;"),
            ("a/tests.rs", "use crate::b::Two;"),
            ("b.rs", "use crate::a::One; pub struct Two(One);"),
        ];
        assert_eq!(found(&files), none);
    }
}
