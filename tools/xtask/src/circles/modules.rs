//! The modules of a package, as the compiler finds their files.

use std::fs;
use std::path::{Path, PathBuf};

use syn::{Attribute, Expr, Item, Lit, Meta};

use crate::shell::Result;

/// A module, in a file of its own or within one.
pub(super) struct Module {
    /// Its path from the root of the crate, without `crate`.
    pub(super) path: Vec<String>,
    /// The name of its file, from the folder `src`.
    pub(super) file: String,
    /// What is in it, without other modules and without what is for tests.
    pub(super) items: Vec<Item>,
}

/// All modules of the library, or of the program if there is no library.
pub(super) fn modules(src: &Path) -> Result<Vec<Module>> {
    let mut all = Vec::new();
    let file = ["lib.rs", "main.rs"].map(|name| src.join(name)).into_iter().find(|path| path.is_file());
    let file = file.ok_or_else(|| format!("{}: no lib.rs and no main.rs", src.display()))?;
    read(src, &file, &[], &mut all)?;
    Ok(all)
}

fn read(src: &Path, file: &Path, path: &[String], all: &mut Vec<Module>) -> Result<()> {
    let problem = |error: String| format!("{}: {error}", file.display());
    let text = fs::read_to_string(file).map_err(|error| problem(error.to_string()))?;
    let parsed = syn::parse_file(&text).map_err(|error| problem(error.to_string()))?;
    let folder = file.parent().unwrap_or(src);
    let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let below = if matches!(&*stem, "lib" | "main" | "mod") { folder.to_owned() } else { folder.join(stem) };
    let name = file.strip_prefix(src).unwrap_or(file).display().to_string();
    let found = Found { src, name, folder: folder.to_owned() };
    found.add(parsed.items, path, &below, all)
}

/// A file that was read.
struct Found<'a> {
    src: &'a Path,
    name: String,
    folder: PathBuf,
}

impl Found<'_> {
    fn add(&self, items: Vec<Item>, path: &[String], below: &Path, all: &mut Vec<Module>) -> Result<()> {
        let (modules, items): (Vec<_>, Vec<_>) = items
            .into_iter()
            .filter(|item| !is_for_tests(attributes(item)))
            .partition(|item| matches!(item, Item::Mod(_)));
        all.push(Module { path: path.to_vec(), file: self.name.clone(), items });
        for module in modules {
            let Item::Mod(module) = module else { continue };
            let name = module.ident.to_string();
            let inner = [path, std::slice::from_ref(&name)].concat();
            if let Some((_, items)) = module.content {
                self.add(items, &inner, &below.join(&name), all)?;
                continue;
            }
            let told = module.attrs.iter().find_map(path_of).map(|told| self.folder.join(told));
            let usual = [below.join(format!("{name}.rs")), below.join(&name).join("mod.rs")];
            let file = told.into_iter().chain(usual).find(|path| path.is_file());
            let file = file.ok_or_else(|| format!("{}: the module {name} has no file", self.name))?;
            read(self.src, &file, &inner, all)?;
        }
        Ok(())
    }
}

/// The text of an attribute `path = "..."`.
fn path_of(attribute: &Attribute) -> Option<String> {
    let Meta::NameValue(pair) = &attribute.meta else { return None };
    match &pair.value {
        Expr::Lit(text) if pair.path.is_ident("path") => match &text.lit {
            Lit::Str(text) => Some(text.value()),
            _ => None,
        },
        _ => None,
    }
}

/// Whether something is compiled for tests alone.
pub(super) fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => {
            let text = list.tokens.to_string();
            text == "test" || text.starts_with("all (test") || text.starts_with("any (test")
        }
        _ => false,
    })
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(it) => &it.attrs,
        Item::Enum(it) => &it.attrs,
        Item::Fn(it) => &it.attrs,
        Item::Impl(it) => &it.attrs,
        Item::Macro(it) => &it.attrs,
        Item::Mod(it) => &it.attrs,
        Item::Static(it) => &it.attrs,
        Item::Struct(it) => &it.attrs,
        Item::Trait(it) => &it.attrs,
        Item::Type(it) => &it.attrs,
        Item::Use(it) => &it.attrs,
        _ => &[],
    }
}
