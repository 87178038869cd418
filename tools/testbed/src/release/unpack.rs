//! Puts a release into a folder of its own, from which it runs with its own libraries.

use std::{
    fs::{self, File, Permissions},
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use super::{
    Release,
    apt::{Apt, run},
    recipes::{Recipe, is_whole},
};
use crate::Error;

/// Fetches a release into its folder below `parent`, unless it is there.
pub(super) fn fetch(release: &Release, recipe: &Recipe, parent: &Path) -> Result<(), Error> {
    fs::create_dir_all(parent).map_err(Error::io(parent.display().to_string()))?;
    // One process at a time. The end of this function unlocks it.
    let turn = File::create(parent.join(".turn")).map_err(Error::io(".turn"))?;
    turn.lock().map_err(Error::io(".turn"))?;
    let root = parent.join(release.name);
    if is_whole(recipe, &root) {
        return Ok(());
    }
    let apt = Apt::new(parent.join(".apt").join(recipe.suite), recipe.suite)?;
    apt.lists(false)?;
    let draft = parent.join(format!("{}.draft", release.name));
    if attempt(&apt, recipe, &draft).is_err() {
        // Lists that are old are the usual reason.
        apt.lists(true)?;
        attempt(&apt, recipe, &draft)?;
    }
    remove(&root)?;
    fs::rename(&draft, &root).map_err(Error::io(root.display().to_string()))
}

fn attempt(apt: &Apt, recipe: &Recipe, root: &Path) -> Result<(), Error> {
    remove(root)?;
    let packages = root.join(".packages");
    fs::create_dir_all(&packages).map_err(Error::io("the folder of packages"))?;
    let mut needed = apt.needed(recipe.packages)?;
    needed.retain(|(package, _)| recipe.keeps(package));
    apt.download(&needed, &packages)?;
    for package in entries(&packages)? {
        run(Command::new("dpkg").arg("-x").args([&package, root]))?;
    }
    for unused in [".packages", "usr/share/doc", "usr/share/man", "usr/share/locale"] {
        remove(&root.join(unused))?;
    }
    if !recipe.programs.is_empty() {
        let loader = Loader::of(root)?;
        for program in recipe.programs {
            loader.wrap(&root.join(program))?;
        }
    }
    fs::write(root.join(".whole"), recipe.mark()).map_err(Error::io("the mark"))
}

/// What starts a program with the libraries of its release.
#[derive(Debug)]
struct Loader {
    /// Paths below the root: of itself, and of the folders of libraries.
    path: String,
    folders: Vec<String>,
    /// Whether it can start a program under another name than that of its file, as from glibc 2.33 on.
    renames: bool,
}

impl Loader {
    fn of(root: &Path) -> Result<Self, Error> {
        let (mut path, mut folders) = (None, Vec::new());
        // Older suites have libraries in both.
        for parent in ["usr/lib", "lib"].into_iter().filter(|parent| root.join(parent).is_dir()) {
            for folder in entries(&root.join(parent))? {
                let triplet = name_of(&folder);
                if !triplet.contains("-linux-") {
                    continue;
                }
                let names = entries(&folder)?.into_iter().map(|file| name_of(&file));
                if let Some(name) = names.into_iter().find(|name| name.starts_with("ld-linux")) {
                    path = Some(format!("{parent}/{triplet}/{name}"));
                }
                folders.push(format!("{parent}/{triplet}"));
            }
        }
        let path = path.ok_or_else(|| Error::State("no loader of programs among the libraries".into()))?;
        let renames = run(Command::new(root.join(&path)).arg("--help"))
            .is_ok_and(|explanation| explanation.contains("--argv0"));
        Ok(Self { path, folders, renames })
    }

    /// Puts a script in the place of a program, which runs it with its own loader and libraries. The process
    /// id stays the same, and the program finds its other files where it expects them: beside itself. A
    /// program that is a script stays.
    fn wrap(&self, program: &Path) -> Result<(), Error> {
        let shown = program.display().to_string();
        if fs::read(program).map_err(Error::io(&shown))?.starts_with(b"#!") {
            return Ok(());
        }
        let real = PathBuf::from(format!("{shown}.real"));
        fs::rename(program, real).map_err(Error::io(&shown))?;
        let folders: Vec<_> = self.folders.iter().map(|folder| format!("$root/{folder}")).collect();
        let (loader, name) = (&self.path, if self.renames { " --argv0 \"$0\"" } else { "" });
        let script = format!(
            "#!/bin/sh\nroot=${{0%/usr/*}}\n\
             exec \"$root/{loader}\" --library-path \"{}\"{name} \"$0.real\" \"$@\"\n",
            folders.join(":")
        );
        let write = || {
            fs::write(program, script)?;
            fs::set_permissions(program, Permissions::from_mode(0o755))
        };
        write().map_err(Error::io(shown))
    }
}

fn name_of(file: &Path) -> String {
    file.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let read =
        || fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<_>>();
    read().map_err(Error::io(folder.display().to_string()))
}

fn remove(folder: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::Io(folder.display().to_string(), error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::release::recipes::{REDIS_8, VALKEY_9, ZOOKEEPER_3_9};

    #[test]
    fn libraries_are_kept_and_what_sets_up_a_system_is_not() {
        for (package, native, java) in [
            ("libssl3t64", true, false),
            ("libnetty-java", false, true),
            ("libperl5.40", false, false),
            ("libdbi-perl", false, false),
            ("systemd", false, false),
            ("libzookeeper-java", false, true),
        ] {
            assert_eq!((REDIS_8.keeps(package), ZOOKEEPER_3_9.keeps(package)), (native, java), "{package}");
        }
        assert!(REDIS_8.keeps("redis-tools") && !VALKEY_9.keeps("redis-tools"));
    }

    #[test]
    fn a_wrapped_program_runs_with_the_loader_that_it_is_given() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        let write = |file: &str, text: &str| {
            let file = root.join(file);
            fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
            fs::write(&file, text).expect("a file");
            fs::set_permissions(&file, Permissions::from_mode(0o755)).expect("a file");
            file
        };
        write("lib/x-linux-gnu/libc.so", "");
        let shown = root.display();
        for (help, name) in
            [("--argv0 STRING", format!(" --argv0 {shown}/usr/bin/server")), ("", String::new())]
        {
            write("usr/lib/x-linux-gnu/ld-linux.so", &format!("#!/bin/sh\necho \"{help}\" \"$@\"\n"));
            let program = write("usr/bin/server", "\u{7f}ELF");
            Loader::of(root).expect("a loader").wrap(&program).expect("it can be wrapped");
            let said = run(Command::new(&program).args(["--port", "1 2"])).expect("it runs");
            let expected = format!(
                "{help} --library-path {shown}/usr/lib/x-linux-gnu:{shown}/lib/x-linux-gnu{name} \
                 {shown}/usr/bin/server.real --port 1 2\n"
            );
            assert_eq!(said, expected);
        }
    }
}
