//! No two files of a package import each other in a circle: a file that can be read only together with another one is
//! no file of its own. The `use` lines are read, and re-exports are followed. What is for tests does not count.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::shell::root;

/// Circles that are meant: an error names the lock that it is about, and a name that is not allowed is an error.
const MEANT: [[&str; 2]; 1] = [["contract::error", "contract::name"]];

/// A name that a `use` line makes, what it stands for, and whether it is only passed on.
type Import = (String, String, bool);

/// The imports of each module, which has a file of its own.
type Modules = BTreeMap<String, Vec<Import>>;

/// The text of each module.
fn read(folder: &Path, src: &Path, modules: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            read(&path, src, modules);
        } else if path.extension().is_some_and(|end| end == "rs") {
            let below = path.strip_prefix(src).expect("it is below").with_extension("");
            let words = below.iter().map(|word| word.to_string_lossy().into_owned());
            let words: Vec<_> = words.filter(|word| !["lib", "main", "mod"].contains(&&**word)).collect();
            modules.insert(words.join("::"), fs::read_to_string(&path).expect("a file"));
        }
    }
}

/// The imports of the modules that are not for tests alone.
fn modules(texts: &BTreeMap<String, String>) -> Modules {
    let of_tests = texts.iter().flat_map(|(module, text)| {
        let names = text.split("#[cfg(test)]\nmod ").skip(1).filter_map(|rest| rest.split_once(';'));
        names.map(move |(name, _)| format!("{module}::{name}").trim_start_matches("::").to_owned())
    });
    let of_tests: Vec<_> = of_tests.collect();
    let is_of_tests = |module: &str| {
        of_tests.iter().any(|it| {
            module.strip_prefix(&**it).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
        })
    };
    let texts = texts.iter().filter(|(module, _)| !is_of_tests(module));
    texts.map(|(module, text)| (module.clone(), imports(text))).collect()
}

fn imports(text: &str) -> Vec<Import> {
    let text = text.split("\nmod tests {").next().unwrap_or_default();
    let mut all = Vec::new();
    for (at, _) in text.match_indices("use ").filter(|(at, _)| {
        let line = text[..*at].rsplit('\n').next().unwrap_or_default();
        line.is_empty() || line.starts_with("pub")
    }) {
        let is_public = text[..at].rsplit('\n').next().is_some_and(|line| !line.is_empty());
        let tree = text[at + 4..].split(';').next().unwrap_or_default();
        expand(&tree.split_whitespace().collect::<Vec<_>>().join(" "), "", is_public, &mut all);
    }
    all
}

/// All paths of a tree like `a::{b, c::{self, d as e}}`.
fn expand(tree: &str, before: &str, is_public: bool, all: &mut Vec<Import>) {
    if let Some((start, rest)) = tree.split_once('{') {
        let (mut depth, inner) = (0, rest.rsplit_once('}').map_or(rest, |(inner, _)| inner));
        let parts = inner.split(|letter| {
            depth += i32::from(letter == '{') - i32::from(letter == '}');
            letter == ',' && depth == 0
        });
        for part in parts.map(str::trim).filter(|part| !part.is_empty()) {
            expand(part, &format!("{before}{start}"), is_public, all);
        }
        return;
    }
    let (path, name) = tree.split_once(" as ").unwrap_or((tree, ""));
    let path = format!("{before}{path}");
    let path = path.strip_suffix("::self").unwrap_or(&path);
    let name = if name.is_empty() { path.rsplit("::").next().unwrap_or_default() } else { name };
    all.push((name.to_owned(), path.to_owned(), is_public));
}

/// The path from the root of the crate, if it is one of this crate.
fn absolute(modules: &Modules, here: &str, path: &str) -> Option<String> {
    let join = |one: &str, other: &str| {
        [one, other].into_iter().filter(|it| !it.is_empty()).collect::<Vec<_>>().join("::")
    };
    if let Some(rest) = path.strip_prefix("super::") {
        let parent = here.rsplit_once("::").map_or("", |(parent, _)| parent);
        return absolute(modules, parent, &format!("self::{rest}"));
    }
    if let Some(rest) = path.strip_prefix("crate::") {
        return Some(rest.to_owned());
    }
    match path.strip_prefix("self::") {
        Some(rest) if rest.starts_with("super::") => absolute(modules, here, rest),
        Some(rest) => Some(join(here, rest)),
        None => {
            let child = join(here, path.split("::").next().unwrap_or_default());
            modules.contains_key(&child).then(|| join(here, path))
        }
    }
}

/// The module in which the thing of this path is.
fn home(modules: &Modules, path: &str, depth: usize) -> Option<String> {
    let mut module = path;
    while !modules.contains_key(module) {
        module = module.rsplit_once("::").map_or("", |(outer, _)| outer);
    }
    let rest = path[module.len()..].trim_start_matches("::");
    let (name, further) = rest.split_once("::").map_or((rest, ""), |(name, rest)| (name, rest));
    let passed_on = modules.get(module)?.iter().find(|(it, ..)| it == name && !name.is_empty());
    match passed_on.and_then(|(_, path, _)| absolute(modules, module, path)) {
        Some(path) if depth > 0 => {
            home(modules, format!("{path}::{further}").trim_end_matches("::"), depth - 1)
        }
        _ => Some(module.to_owned()),
    }
}

/// Pairs of modules that import each other, perhaps through others.
fn circles(modules: &Modules) -> Vec<[String; 2]> {
    let uses = |module: &str| -> BTreeSet<String> {
        let imports = modules[module].iter().filter(|(.., is_public)| !is_public);
        let paths = imports.filter_map(|(_, path, _)| absolute(modules, module, path));
        paths.filter_map(|path| home(modules, &path, 8)).filter(|home| home != module).collect()
    };
    let uses: BTreeMap<&String, BTreeSet<String>> = modules.keys().map(|it| (it, uses(it))).collect();
    let reach = |from: &String| {
        let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(next) = open.pop() {
            open.extend(uses[next].iter().filter(|it| reached.insert((*it).clone())));
        }
        reached
    };
    let reached: BTreeMap<&String, BTreeSet<String>> = modules.keys().map(|it| (it, reach(it))).collect();
    let pairs = reached.iter().flat_map(|(one, uses)| uses.iter().map(move |other| (*one, other)));
    let circles = pairs.filter(|(one, other)| one < other && reached[other].contains(*one));
    circles.map(|(one, other)| [one.clone(), other.clone()]).collect()
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    let mut meant = Vec::new();
    let folders = [
        ".",
        "backend-etcd",
        "backend-redis",
        "backend-sql",
        "backend-zk",
        "cli",
        "compare-bench",
        "lockcore",
        "python",
    ];
    for folder in folders.into_iter().chain(["tools/faults", "tools/proxy", "tools/testbed", "tools/xtask"]) {
        let (mut texts, src) = (BTreeMap::new(), root().join(folder).join("src"));
        read(&src, &src, &mut texts);
        for circle in circles(&modules(&texts)) {
            assert!(MEANT.iter().any(|it| circle == *it), "{folder}: {circle:?}");
            meant.push(circle);
        }
    }
    assert_eq!(meant, MEANT, "a circle that is no more must not stay in the list");
}

#[test]
fn a_circle_is_found_through_a_re_export() {
    let files = [
        ("", "mod a;\nmod b;\nmod c;\n#[cfg(test)]\nmod e;"),
        ("a", "use crate::b::{self, Two as T};\npub struct One(T);"),
        ("b", "pub use crate::c::Two;"),
        (
            "c",
            "use super::a::One;\npub struct Two(Box<One>);\n#[cfg(test)]\nmod tests {\n    use crate::b::X;\n}",
        ),
        ("d", "use std::fmt;\nuse crate::a::One;"),
        ("e::f", "use crate::e::g::X;"),
        ("e::g", "use crate::e::f::X;"),
    ];
    let texts = files.map(|(name, text)| (name.to_owned(), text.to_owned()));
    assert_eq!(circles(&modules(&texts.into())), [["a", "c"]]);
}
