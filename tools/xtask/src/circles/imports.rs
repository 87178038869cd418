//! What each module takes from which other one.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{Visit, visit_path};
use syn::{Item, Path, UseTree, Visibility};

use super::modules::Module;

/// How many re-exports are followed.
const DEPTH: usize = 8;

/// A name that a `use` declaration makes, and the path that it stands for, as it is written.
struct Import {
    name: String,
    path: Vec<String>,
    is_public: bool,
}

/// What a module imports, and the paths in its code.
struct Uses {
    imports: Vec<Import>,
    paths: Vec<Vec<String>>,
}

/// Pairs of modules of which the first uses something of the second, and which are in different files.
pub(super) fn edges(modules: &[Module]) -> BTreeSet<(usize, usize)> {
    let at: BTreeMap<&[String], usize> =
        modules.iter().enumerate().map(|(index, module)| (&module.path[..], index)).collect();
    let crate_of = Crate { modules, at, uses: modules.iter().map(uses).collect() };
    let mut edges = BTreeSet::new();
    for from in 0..modules.len() {
        for to in crate_of.used_by(from) {
            if modules[from].file != modules[to].file {
                edges.insert((from, to));
            }
        }
    }
    edges
}

struct Crate<'a> {
    modules: &'a [Module],
    at: BTreeMap<&'a [String], usize>,
    uses: Vec<Uses>,
}

impl Crate<'_> {
    fn used_by(&self, from: usize) -> Vec<usize> {
        let Uses { imports, paths } = &self.uses[from];
        let mut used = Vec::new();
        for import in imports {
            // A name that is only passed on is used by others.
            let is_used = || paths.iter().any(|path| path[0] == import.name);
            if !import.is_public || is_used() {
                used.extend(self.absolute(from, &import.path).and_then(|path| self.home(&path, DEPTH)));
            }
        }
        for path in paths.iter().filter(|path| path.len() > 1) {
            let import = imports.iter().find(|import| import.name == path[0]);
            let path = match import.and_then(|import| self.absolute(from, &import.path)) {
                Some(start) => Some([&start[..], &path[1..]].concat()),
                None => self.absolute(from, path),
            };
            used.extend(path.and_then(|path| self.home(&path, DEPTH)));
        }
        used
    }

    /// The path from the root of this crate, if it is one of this crate.
    fn absolute(&self, from: usize, path: &[String]) -> Option<Vec<String>> {
        let here = &self.modules[from].path;
        let supers = path.iter().take_while(|part| *part == "super").count();
        match &*path[0] {
            "crate" => Some(path[1..].to_vec()),
            "self" => Some([here, &path[1..]].concat()),
            "super" => Some([here.get(..here.len().checked_sub(supers)?)?, &path[supers..]].concat()),
            _ => {
                let child = [here, &path[..1]].concat();
                self.at.contains_key(&child[..]).then(|| [here, path].concat())
            }
        }
    }

    /// The module in which the thing of this path is defined. `None` for the module itself.
    fn home(&self, path: &[String], depth: usize) -> Option<usize> {
        let length = (0..=path.len()).rev().find(|&length| self.at.contains_key(&path[..length]))?;
        let (module, rest) = (self.at[&path[..length]], &path[length..]);
        let name = rest.first()?;
        let import = self.uses[module].imports.iter().find(|import| import.name == *name);
        let further = import.and_then(|import| self.absolute(module, &import.path));
        match further {
            Some(further) if depth > 0 => self.home(&[&further[..], &rest[1..]].concat(), depth - 1),
            _ => Some(module),
        }
    }
}

fn uses(module: &Module) -> Uses {
    let mut found = Uses { imports: Vec::new(), paths: Vec::new() };
    for item in &module.items {
        match item {
            Item::Use(used) => {
                let is_public = !matches!(used.vis, Visibility::Inherited);
                imports(&used.tree, &mut Vec::new(), is_public, &mut found.imports);
            }
            other => Paths(&mut found.paths).visit_item(other),
        }
    }
    found
}

fn imports(tree: &UseTree, before: &mut Vec<String>, is_public: bool, all: &mut Vec<Import>) {
    let mut add = |name: String, last: Option<String>| {
        let path = before.iter().cloned().chain(last).collect();
        all.push(Import { name, path, is_public });
    };
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            imports(&path.tree, before, is_public, all);
            before.pop();
        }
        UseTree::Name(name) if name.ident == "self" => add(before.last().cloned().unwrap_or_default(), None),
        UseTree::Name(name) => add(name.ident.to_string(), Some(name.ident.to_string())),
        UseTree::Rename(renamed) if renamed.ident == "self" => add(renamed.rename.to_string(), None),
        UseTree::Rename(renamed) => add(renamed.rename.to_string(), Some(renamed.ident.to_string())),
        UseTree::Glob(_) => add("*".to_owned(), Some("*".to_owned())),
        UseTree::Group(group) => {
            for tree in &group.items {
                imports(tree, before, is_public, all);
            }
        }
    }
}

/// All paths of some code.
struct Paths<'a>(&'a mut Vec<Vec<String>>);

impl<'ast> Visit<'ast> for Paths<'_> {
    fn visit_path(&mut self, path: &'ast Path) {
        self.0.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit_path(self, path);
    }
}
