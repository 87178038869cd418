//! What is costly to make and alike for many servers: made once, and kept for later test programs.
//!
//! It lies in the workspace's target folder, so `cargo clean` removes it. There is one piece for each kind of
//! server and its arguments: when the programs that made it change, another takes its place.

use std::{
    fs::{self, DirBuilder, File, TryLockError},
    hash::{DefaultHasher, Hash, Hasher},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use crate::Error;

/// How long to wait for another process that makes it. Then it is done without.
const PATIENCE: Duration = Duration::from_secs(90);

/// The file in a piece that says what it was made of.
const MADE_OF: &str = "made-of";

/// The folder in a piece that holds it.
const CONTENTS: &str = "contents";

/// A piece that is there or can be.
#[derive(Debug)]
pub(crate) struct Kept {
    root: PathBuf,
    name: String,
    made_of: String,
}

/// What there is of a piece.
#[derive(Debug)]
pub(crate) enum Found {
    /// All of it.
    Whole(Whole),
    /// Nothing. Nobody else makes it meanwhile.
    Nothing(Vacancy),
}

/// A piece that nobody replaces as long as this value lives.
#[derive(Debug)]
pub(crate) struct Whole {
    folder: PathBuf,
    _lock: File,
}

/// The place of a piece that is to be made.
#[derive(Debug)]
pub(crate) struct Vacancy {
    kept: Kept,
    lock: File,
}

impl Kept {
    /// The piece of a kind of server that these programs make, with all else that decides what it is like.
    /// `None` if nothing can be kept here.
    pub(crate) fn find(kind: &str, like: &impl Hash, programs: &[String]) -> Option<Self> {
        Self::find_in(root()?, kind, like, programs)
    }

    fn find_in(root: PathBuf, kind: &str, like: &impl Hash, programs: &[String]) -> Option<Self> {
        let mut hasher = DefaultHasher::new();
        (like, programs).hash(&mut hasher);
        // It is not synced, so a crash of the machine can leave empty files. Another start, another piece.
        let mut made_of = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        for program in programs {
            let its = fs::metadata(program).ok()?;
            let line = format!("{program} {} {}.{:09}\n", its.len(), its.mtime(), its.mtime_nsec());
            made_of.push_str(&line);
        }
        Some(Self { root, name: format!("{kind}-{:016x}", hasher.finish()), made_of })
    }

    /// Looks for it, and waits while another process makes it. `None`: do without.
    pub(crate) fn look(self) -> Option<Found> {
        self.look_for(PATIENCE)
    }

    fn look_for(self, patience: Duration) -> Option<Found> {
        let lock = self.root.join(format!("{}.lock", self.name));
        let lock = File::options().create(true).append(true).open(lock).ok()?;
        let deadline = Instant::now() + patience;
        wait(deadline, || lock.try_lock_shared())?;
        if self.is_whole() {
            return Some(Found::Whole(Whole { folder: self.contents(), _lock: lock }));
        }
        lock.unlock().ok()?;
        wait(deadline, || lock.try_lock())?;
        // Another process may have made it in between.
        if self.is_whole() {
            return Some(Found::Whole(Whole { folder: self.contents(), _lock: lock }));
        }
        Some(Found::Nothing(Vacancy { kept: self, lock }))
    }

    fn place(&self) -> PathBuf {
        self.root.join(&self.name)
    }

    fn contents(&self) -> PathBuf {
        self.place().join(CONTENTS)
    }

    fn is_whole(&self) -> bool {
        fs::read_to_string(self.place().join(MADE_OF)).is_ok_and(|made_of| made_of == self.made_of)
    }
}

impl Whole {
    /// The folder that holds it.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Vacancy {
    /// Lets `make` fill the folder that it is given, and keeps what is in it then.
    pub(crate) fn fill(self, make: impl FnOnce(&Path) -> Result<(), Error>) -> Result<Whole, Error> {
        let Self { kept, lock } = self;
        let io = |error| Error::Io(format!("{} is kept", kept.name), error);
        // What those have left behind who were killed meanwhile. Programs that they have started may still
        // write into it, so each has a folder of its own.
        let prefix = format!("{}.new-", kept.name);
        for entry in fs::read_dir(&kept.root).map_err(io)?.flatten() {
            if entry.file_name().to_str().is_some_and(|name| name.starts_with(&prefix)) {
                fs::remove_dir_all(entry.path()).map_err(io)?;
            }
        }
        let new = tempfile::Builder::new().prefix(&prefix).tempdir_in(&kept.root).map_err(io)?;
        let contents = new.path().join(CONTENTS);
        fs::create_dir(&contents).map_err(io)?;
        make(&contents)?;
        fs::write(new.path().join(MADE_OF), &kept.made_of).map_err(io)?;
        let place = kept.place();
        if place.exists() {
            fs::remove_dir_all(&place).map_err(io)?;
        }
        fs::rename(new.path(), &place).map_err(io)?;
        // It has another name now.
        drop(new.keep());
        Ok(Whole { folder: kept.contents(), _lock: lock })
    }
}

/// Tries to lock until it succeeds, or it is too late.
fn wait(deadline: Instant, attempt: impl Fn() -> Result<(), TryLockError>) -> Option<()> {
    loop {
        match attempt() {
            Ok(()) => return Some(()),
            Err(TryLockError::Error(_)) => return None,
            Err(TryLockError::WouldBlock) if Instant::now() > deadline => return None,
            Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(5)),
        }
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

    /// A folder with a program, to which a piece belongs.
    struct Place {
        root: tempfile::TempDir,
        program: String,
    }

    impl Place {
        fn new() -> Self {
            let root = tempfile::tempdir().expect("a folder");
            let program = root.path().join("program").display().to_string();
            fs::write(&program, "1").expect("a program");
            Self { root, program }
        }

        fn find(&self, like: &str) -> Kept {
            let programs = std::slice::from_ref(&self.program);
            let kept = Kept::find_in(self.root.path().to_owned(), "some", &like, programs);
            kept.expect("the program is there")
        }

        /// What there is, without waiting.
        fn look(&self, like: &str) -> Option<Found> {
            self.find(like).look_for(Duration::ZERO)
        }

        fn vacancy(&self, like: &str) -> Vacancy {
            match self.look(like) {
                Some(Found::Nothing(vacancy)) => vacancy,
                other => panic!("{other:?}"),
            }
        }

        fn kept(&self, like: &str) -> String {
            match self.look(like) {
                Some(Found::Whole(whole)) => fs::read_to_string(whole.folder().join("file")).expect("a file"),
                other => panic!("{other:?}"),
            }
        }

        fn fill(&self, like: &str, text: &str) {
            self.vacancy(like).fill(|folder| written(folder, text)).expect("kept");
        }

        /// How many pieces there are, half made ones as well.
        fn pieces(&self) -> usize {
            let entries = fs::read_dir(self.root.path()).expect("a folder");
            entries.flatten().filter(|entry| entry.path().is_dir()).count()
        }
    }

    fn written(folder: &Path, text: &str) -> Result<(), Error> {
        Ok(fs::write(folder.join("file"), text)?)
    }

    #[test]
    fn a_piece_belongs_to_its_arguments_and_to_the_state_of_its_programs() {
        let place = Place::new();
        place.fill("a", "of a");
        place.fill("b", "of b");
        assert_eq!((&*place.kept("a"), &*place.kept("b")), ("of a", "of b"));

        // Another takes the place of one that has become old.
        fs::write(&place.program, "another").expect("a program");
        place.fill("a", "newer");
        assert_eq!((&*place.kept("a"), place.pieces()), ("newer", 2));
        drop(place.vacancy("b"));

        fs::remove_file(&place.program).expect("it was there");
        let programs = std::slice::from_ref(&place.program);
        assert!(Kept::find_in(place.root.path().to_owned(), "some", &"a", programs).is_none());
    }

    #[test]
    fn nothing_half_made_is_kept() {
        let place = Place::new();
        let failing = |folder: &Path| {
            written(folder, "half of it")?;
            Err(Error::State("it fails".to_owned()))
        };
        place.vacancy("a").fill(failing).expect_err("it fails");
        assert_eq!(place.pieces(), 0);

        // Killed: nothing is cleared away.
        let killed = place.root.path().join(format!("{}.new-xyz", place.find("a").name)).join(CONTENTS);
        fs::create_dir_all(&killed).expect("a folder");
        written(&killed, "half of it").expect("written");
        place.fill("a", "all");
        assert_eq!((&*place.kept("a"), place.pieces()), ("all", 1));
    }

    #[test]
    fn one_makes_it_and_the_others_wait() {
        let place = Place::new();
        let vacancy = place.vacancy("a");
        assert!(place.look("a").is_none(), "somebody makes it");
        let waits = thread::scope(|scope| {
            let waits = scope.spawn(|| place.find("a").look());
            thread::sleep(Duration::from_millis(100));
            vacancy.fill(|folder| written(folder, "all")).expect("kept");
            waits.join().expect("no panic")
        });
        assert!(matches!(waits, Some(Found::Whole(_))), "{waits:?}");

        // Several may use it, and nobody replaces it meanwhile.
        assert_eq!(place.kept("a"), "all");
        fs::write(&place.program, "another").expect("a program");
        assert!(place.look("a").is_none(), "it is in use");
        drop(waits);
        drop(place.vacancy("a"));
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
