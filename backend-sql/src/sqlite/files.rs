//! Whether the files that a connection has opened are still those that others find under their names.
//!
//! SQLite opens files by name once, and never looks at the names again. If the database file is removed or replaced, or
//! one of the two files beside it, then other processes open the new files and get the locks at once, while an old
//! connection goes on in files that nobody else can see.
//!
//! A file is known by device and inode. An inode that is open is not given to another file, so as long as the connection
//! is open the comparison is exact. It is made *after* each statement, and before its answer is given to anybody. If the
//! names lead to the opened files then, they did so when the statement was carried out (but for somebody who moves a file
//! away and back meanwhile), so whoever had opened the names before was in the same files, and is excluded. A look before
//! the statement would prove nothing about its effect. A replacement after the look is noticed by the next one, which is
//! that of the renewal at the latest.
//!
//! The files must not be opened to look at them: when a process closes any handle of a file, POSIX takes all its locks on
//! that file away, those of SQLite as well.

use std::io;
use std::path::{Path, PathBuf};

/// Device and inode. On systems without them, files that are open cannot be removed.
type Id = Option<(u64, u64)>;

/// The files of one open connection.
#[derive(Debug)]
pub(super) struct Files {
    names: [PathBuf; 3],
    ids: [Id; 3],
}

impl Files {
    /// What the name leads to now, to be compared with what is there after opening.
    pub(super) fn before(path: &Path) -> Option<Id> {
        id(path).ok()
    }

    /// The files of a connection that has just been opened, and has read something. The database file was opened after
    /// `before` was looked up, so if the name leads to the same file still, that is the one. `None`: it is not, or one of
    /// the others is missing already.
    ///
    /// The log and the shared memory beside it are made by opening, so there is nothing to compare them with. One that is
    /// removed and made anew between the opening and this look, less than a millisecond, is not noticed by the
    /// comparison. On Linux [`has_lost`] notices it.
    pub(super) fn of(path: &Path, before: Option<Id>) -> Option<Self> {
        // SQLite follows symbolic links, and puts the other files beside the real one.
        let real = path.canonicalize().ok()?;
        let beside = |end: &str| {
            let mut name = real.clone().into_os_string();
            name.push(end);
            PathBuf::from(name)
        };
        let names = [path.to_owned(), beside("-wal"), beside("-shm")];
        let ids = [id(&names[0]).ok()?, id(&names[1]).ok()?, id(&names[2]).ok()?];
        (before == Some(ids[0]) && !has_lost(&real)).then_some(Self { names, ids })
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
        for (name, known) in self.names.iter().zip(self.ids) {
            if id(name).ok() != Some(known) {
                return Err(io::Error::other(format!("{} was removed or replaced", name.display())));
            }
        }
        Ok(())
    }
}

#[cfg(unix)]
fn id(path: &Path) -> io::Result<Id> {
    use std::os::unix::fs::MetadataExt;
    let found = std::fs::metadata(path)?;
    Ok(Some((found.dev(), found.ino())))
}

#[cfg(not(unix))]
fn id(path: &Path) -> io::Result<Id> {
    std::fs::metadata(path).map(|_| None)
}

/// Whether this process has the shared memory or the log of this database open, and they have been removed. SQLite shares
/// the memory among all connections of a process, so a new connection would get the removed one. Where the database
/// file itself has been removed as well, they belong to that.
#[cfg(target_os = "linux")]
fn has_lost(real: &Path) -> bool {
    let Ok(open) = std::fs::read_dir("/proc/self/fd") else { return false };
    let gone = |end: &str| {
        let mut name = real.to_owned().into_os_string();
        name.push(end);
        name.push(" (deleted)");
        PathBuf::from(name)
    };
    let (main, others) = (gone(""), [gone("-wal"), gone("-shm")]);
    let open: Vec<_> = open.filter_map(|one| std::fs::read_link(one.ok()?.path()).ok()).collect();
    open.iter().any(|one| others.contains(one)) && !open.contains(&main)
}

#[cfg(not(target_os = "linux"))]
fn has_lost(_: &Path) -> bool {
    false
}
