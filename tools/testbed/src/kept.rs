//! What is costly to make and alike for many servers: made once, and kept for later test programs.
//!
//! It lies in the workspace's target folder, so `cargo clean` removes it. There is one piece for each kind of
//! server and its arguments: when the programs that made it change, another takes its place. Several processes
//! may make it at once; one of them keeps its own.

use std::{
    fs::{self, DirBuilder},
    hash::{DefaultHasher, Hash, Hasher},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
    time::Duration,
};

use crate::Error;

/// What the names of folders begin with that are being made.
const NEW: &str = ".new-";

/// Longer than any is being made.
const LONG: Duration = Duration::from_hours(1);

/// A piece that is there or can be.
#[derive(Debug)]
pub(crate) struct Kept {
    root: PathBuf,
    /// What the names of all begin with that are made with the same arguments.
    like: String,
    place: PathBuf,
}

impl Kept {
    /// The piece of a kind of server that these programs make, with all else that decides what it is like.
    /// `None` if nothing can be kept here.
    pub(crate) fn find(kind: &str, like: &impl Hash, programs: &[String]) -> Option<Self> {
        Self::find_in(root()?, kind, like, programs)
    }

    fn find_in(root: PathBuf, kind: &str, like: &impl Hash, programs: &[String]) -> Option<Self> {
        let (mut arguments, mut made_of) = (DefaultHasher::new(), DefaultHasher::new());
        (like, programs).hash(&mut arguments);
        // It is not synced, so a crash of the machine can leave empty files. Another start, another piece.
        fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.hash(&mut made_of);
        for program in programs {
            let its = fs::metadata(program).ok()?;
            (its.len(), its.mtime(), its.mtime_nsec()).hash(&mut made_of);
        }
        let like = format!("{kind}-{:016x}-", arguments.finish());
        let place = root.join(format!("{like}{:016x}", made_of.finish()));
        Some(Self { root, like, place })
    }

    /// The folder that holds it, if it was made.
    pub(crate) fn whole(&self) -> Option<PathBuf> {
        self.place.is_dir().then(|| self.place.clone())
    }

    /// Lets `make` fill the folder that it is given, keeps what is in it then, and answers where.
    pub(crate) fn fill(self, make: impl FnOnce(&Path) -> Result<(), Error>) -> Result<PathBuf, Error> {
        let io = |error| Error::Io(format!("{} is kept", self.like), error);
        let new = tempfile::Builder::new().prefix(NEW).tempdir_in(&self.root).map_err(io)?;
        make(new.path())?;
        // The older one, and what those have left behind who were killed meanwhile.
        for entry in fs::read_dir(&self.root).map_err(io)?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let age = || entry.metadata().ok()?.modified().ok()?.elapsed().ok();
            let is_old = name.starts_with(&self.like) && entry.path() != self.place
                || name.starts_with(NEW) && age().is_some_and(|age| age > LONG);
            if is_old {
                // Another process may do the same.
                drop(fs::remove_dir_all(entry.path()));
            }
        }
        match fs::rename(new.path(), &self.place) {
            // It has another name now.
            Ok(()) => drop(new.keep()),
            // Another process was faster.
            Err(_) if self.place.is_dir() => (),
            Err(error) => return Err(io(error)),
        }
        Ok(self.place)
    }
}

/// The folder of all that is kept, which is ours alone: what is in it is trusted.
fn root() -> Option<PathBuf> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2)?;
    // A program may outlive the checkout that it was built from.
    if !workspace.is_dir() {
        return None;
    }
    let target = workspace.join("target");
    made(fs::create_dir(&target)).ok()?;
    own(target.join("testbed"))
}

/// This folder, if nobody else may enter it.
fn own(folder: PathBuf) -> Option<PathBuf> {
    made(DirBuilder::new().mode(0o700).create(&folder)).ok()?;
    let its = fs::symlink_metadata(&folder).ok()?;
    let ours = its.uid() == rustix::process::geteuid().as_raw() && its.mode() & 0o777 == 0o700;
    (its.is_dir() && ours).then_some(folder)
}

fn made(answer: io::Result<()>) -> io::Result<()> {
    match answer {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        answer => answer,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn written(folder: &Path, text: &str) -> Result<(), Error> {
        Ok(fs::write(folder.join("file"), text)?)
    }

    #[test]
    fn a_piece_belongs_to_its_arguments_and_programs_and_nothing_half_made_is_kept() {
        let root = tempfile::tempdir().expect("a folder");
        let program = root.path().join("program").display().to_string();
        fs::write(&program, "1").expect("a program");
        let find = |like: &str| {
            let programs = std::slice::from_ref(&program);
            Kept::find_in(root.path().to_owned(), "some", &like, programs).expect("the program is there")
        };
        let text = |like: &str| fs::read_to_string(find(like).whole()?.join("file")).ok();
        let pieces = || {
            let entries = fs::read_dir(root.path()).expect("a folder").flatten();
            entries.filter(|entry| entry.path().is_dir()).count()
        };
        let failing = |folder: &Path| {
            written(folder, "half of it")?;
            Err(Error::State("it fails".to_owned()))
        };
        find("a").fill(failing).expect_err("it fails");
        assert_eq!((text("a"), pieces()), (None, 0));
        find("a").fill(|folder| written(folder, "of a")).expect("kept");
        find("b").fill(|folder| written(folder, "of b")).expect("kept");
        // One that comes second does without its own.
        find("b").fill(|folder| written(folder, "too late")).expect("kept");
        assert_eq!((text("a").as_deref(), text("b").as_deref()), (Some("of a"), Some("of b")));
        // Another takes the place of one that has become old.
        fs::write(&program, "another").expect("a program");
        assert_eq!(text("a"), None);
        find("a").fill(|folder| written(folder, "newer")).expect("kept");
        assert_eq!((text("a").as_deref(), pieces()), (Some("newer"), 2));
    }

    #[test]
    fn a_folder_that_others_may_enter_is_not_trusted() {
        let root = tempfile::tempdir().expect("a folder");
        let folder = root.path().join("kept");
        assert_eq!(own(folder.clone()).as_ref(), Some(&folder), "it is made");
        assert_eq!(own(folder.clone()).as_ref(), Some(&folder), "it is there");
        for mode in [0o755, 0o770, 0o701] {
            fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).expect("a mode");
            assert_eq!(own(folder.clone()), None, "{mode:o}");
        }
        let link = root.path().join("link");
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).expect("a mode");
        std::os::unix::fs::symlink(&folder, &link).expect("a link");
        assert_eq!(own(link), None, "somebody else may have made the link");
    }
}
