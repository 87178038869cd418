//! Checks that the files which a connection has opened still have their names.
//!
//! SQLite opens files by name once, and never looks at the names again. If the database file is removed or
//! replaced, or one of the two files beside it, then other processes open the new files and get the locks at
//! once, while an old connection goes on in files that nobody else can see.
//!
//! A file is known by device and inode. An inode that is open is not given to another file, so as long as the
//! connection is open the comparison is exact. It is made *after* each statement, and before its answer is
//! given to anybody. If the names lead to the opened files then, they did so when the statement was carried
//! out (but for somebody who moves a file away and back meanwhile), so whoever had opened the names before
//! was in the same files, and is excluded. A look before the statement would prove nothing about its effect.
//! A replacement after the look is noticed by the next one, which is that of the renewal at the latest.
//!
//! The three names are in one folder, as a rule, and no name in it changes without the folder's time of
//! change. So as long as that is what it was, the folder alone is looked up. Each lookup costs as much as a
//! tenth of a short statement.
//!
//! The files must not be opened to look at them: when a process closes any handle of a file, POSIX takes all
//! its locks on that file away, those of SQLite as well.

use std::cell::Cell;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Device and inode. On systems without them, files that are open cannot be removed.
pub(super) type Id = Option<(u64, u64)>;

/// Device, inode, and the time of the last change in seconds and nanoseconds. Nobody can set that time, as
/// the time of modification can be set.
type Stamp = (u64, u64, i64, i64);

/// How long a stamp must be unchanged before it counts: the clock of a file system goes in steps of 1 to 10
/// ms, so a change in the same step leaves the same stamp.
const SETTLED: Duration = Duration::from_millis(50);
/// How long an unchanged folder is enough to trust the files. A mount over a file does not change the folder.
const TRUST: Duration = Duration::from_millis(200);

/// The files of one open connection.
#[derive(Debug)]
pub(super) struct Files {
    names: [PathBuf; 3],
    ids: [Id; 3],
    /// Where all of them are.
    folder: Option<PathBuf>,
    seen: Cell<Option<Seen>>,
}

/// The result of a check of all files.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// The stamp of the folder before the check.
    stamp: Stamp,
    /// When this stamp was read first.
    first: Instant,
    checked: Instant,
}

impl Seen {
    /// Whether a later change of the folder would have another stamp.
    fn is_settled(&self) -> bool {
        self.checked.duration_since(self.first) >= SETTLED
    }
}

impl Files {
    /// The file that the name leads to now, to compare it with the one after opening.
    pub(super) fn before(path: &Path) -> Option<Id> {
        id(path).ok()
    }

    /// The files of a connection that has just been opened, and has read something. The database file was
    /// opened after `before` was looked up, so if the name leads to the same file still, that is the one.
    /// `None`: it is not, or one of the others is missing already.
    ///
    /// The log and the shared memory beside it are made by opening, so there is nothing to compare them with.
    /// One that is removed and made anew between the opening and this look, less than a millisecond, is not
    /// noticed by the comparison. On Linux [`has_lost`] notices it.
    pub(super) fn of(path: &Path, before: Option<Id>) -> Option<Self> {
        // SQLite follows symbolic links, and puts the other files beside the real one.
        let real = path.canonicalize().ok()?;
        let names = [path.to_owned(), beside(&real, "-wal"), beside(&real, "-shm")];
        let ids = [id(&names[0]).ok()?, id(&names[1]).ok()?, id(&names[2]).ok()?];
        let folder = path.parent().filter(|folder| {
            folder.canonicalize().ok().as_deref() == real.parent() && path.file_name() == real.file_name()
        });
        let folder = folder.map(Path::to_owned);
        let seen = Cell::new(None);
        (before == Some(ids[0]) && !has_lost(&real)).then_some(Self { names, ids, folder, seen })
    }

    /// Whether a connection that is opened now would get removed files, as far as the system says that.
    pub(super) fn are_lost(path: &Path) -> bool {
        path.canonicalize().is_ok_and(|real| has_lost(&real))
    }

    /// The log, to which each commit writes.
    pub(super) fn log(&self) -> &Path {
        &self.names[1]
    }

    /// Whether the names still lead to these files.
    pub(super) fn check(&self) -> io::Result<()> {
        let now = Instant::now();
        let stamp = self.folder.as_deref().and_then(|folder| stamp(folder).ok());
        let seen = self.seen.get().filter(|seen| Some(seen.stamp) == stamp);
        if seen.is_some_and(|seen| seen.is_settled() && now.duration_since(seen.checked) < TRUST) {
            return Ok(());
        }
        self.check_each()?;
        let first = seen.map_or(now, |seen| seen.first);
        self.seen.set(stamp.map(|stamp| Seen { stamp, first, checked: now }));
        Ok(())
    }

    /// Checks each of the files.
    fn check_each(&self) -> io::Result<()> {
        for (name, known) in self.names.iter().zip(self.ids) {
            if id(name).ok() != Some(known) {
                return Err(io::Error::other(format!("{} was removed or replaced", name.display())));
            }
        }
        Ok(())
    }
}

/// The name of one of the files beside the database.
pub(super) fn beside(real: &Path, end: &str) -> PathBuf {
    let mut name = real.to_owned().into_os_string();
    name.push(end);
    PathBuf::from(name)
}

#[cfg(unix)]
pub(super) fn id(path: &Path) -> io::Result<Id> {
    use std::os::unix::fs::MetadataExt;
    let found = std::fs::metadata(path)?;
    Ok(Some((found.dev(), found.ino())))
}

#[cfg(unix)]
fn stamp(path: &Path) -> io::Result<Stamp> {
    use std::os::unix::fs::MetadataExt;
    let found = std::fs::metadata(path)?;
    Ok((found.dev(), found.ino(), found.ctime(), found.ctime_nsec()))
}

#[cfg(not(unix))]
fn stamp(_: &Path) -> io::Result<Stamp> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(not(unix))]
pub(super) fn id(path: &Path) -> io::Result<Id> {
    std::fs::metadata(path).map(|_| None)
}

/// Whether this process has the shared memory or the log of this database open, and they have been removed.
/// SQLite shares the memory among all connections of a process, so a new connection would get the removed
/// one. Where the database file itself has been removed as well, they belong to that.
#[cfg(target_os = "linux")]
fn has_lost(real: &Path) -> bool {
    let Ok(open) = std::fs::read_dir("/proc/self/fd") else { return false };
    let [main, log, memory] = ["", "-wal", "-shm"].map(|end| beside(real, &format!("{end} (deleted)")));
    let others = [log, memory];
    let open: Vec<_> = open.filter_map(|one| std::fs::read_link(one.ok()?.path()).ok()).collect();
    open.iter().any(|one| others.contains(one)) && !open.contains(&main)
}

#[cfg(not(target_os = "linux"))]
fn has_lost(_: &Path) -> bool {
    false
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn open(folder: &Path) -> Files {
        let path = folder.canonicalize().expect("a folder").join("locks.db");
        for end in ["", "-wal", "-shm"] {
            std::fs::write(format!("{}{end}", path.display()), "").expect("a file");
        }
        Files::of(&path, Files::before(&path)).expect("there")
    }

    /// At any age of the stamp of the folder.
    #[test]
    fn what_is_removed_is_noticed_at_once() {
        for (pause, gone) in [(0, 1), (1, 0), (3, 2), (20, 1), (60, 0), (120, 2), (400, 1)] {
            let folder = tempfile::tempdir().expect("a folder");
            let files = open(folder.path());
            assert!(files.folder.is_some());
            let began = Instant::now();
            loop {
                files.check().expect("there");
                if began.elapsed() >= Duration::from_millis(pause) {
                    break;
                }
            }
            std::fs::remove_file(&files.names[gone]).expect("removed");
            files.check().expect_err("gone");
        }
    }

    #[test]
    fn a_settled_folder_stands_for_its_files() {
        let folder = tempfile::tempdir().expect("a folder");
        let files = open(folder.path());
        files.check().expect("there");
        std::thread::sleep(SETTLED);
        files.check().expect("there");
        let checked = files.seen.get().expect("seen").checked;
        files.check().expect("there");
        assert_eq!(files.seen.get().expect("seen").checked, checked, "one look is enough");
    }

    #[test]
    fn another_folder_under_the_same_name_is_noticed() {
        let outer = tempfile::tempdir().expect("a folder");
        let inner = outer.path().canonicalize().expect("a folder").join("inner");
        std::fs::create_dir(&inner).expect("a folder");
        let files = open(&inner);
        files.check().expect("there");
        std::thread::sleep(SETTLED);
        files.check().expect("there");
        std::fs::rename(&inner, outer.path().join("old")).expect("moved");
        std::fs::create_dir(&inner).expect("a folder");
        open(&inner);
        files.check().expect_err("another");
    }
}
