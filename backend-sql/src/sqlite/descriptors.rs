//! Whether anything else in this process has the database file open.
//!
//! When a process closes any descriptor of a file, POSIX takes all locks of the process on that file away,
//! those of SQLite as well, and the next two writers destroy the file: "How To Corrupt An SQLite Database
//! File", section 2.2. One copy of SQLite knows its own descriptors. It does not know those of another copy
//! in the same process, such as the one of Python's `sqlite3`, nor those of a backup or a hash.
//!
//! What has the file open is seen in the list of descriptors. SQLite opens its files with `O_NOFOLLOW`, which
//! other programs do not, and each copy of it has one descriptor of the shared memory, however many
//! connections there are. Connections of the application by the same copy are welcome.
//!
//! What has had it open only for a moment is seen by its effect: as long as a connection is open, SQLite has a
//! lock on the database, and one on the memory.

use std::cell::Cell;
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::files::{Id, beside, id};

/// The shortest time between two looks.
const EVERY: Duration = Duration::from_millis(200);
/// A look may cost this part of the time between two: a process can have many descriptors.
const SHARE: u32 = 100;

const OPEN: &str = "something else in this process has the database file open: another copy of SQLite, such as that of Python's \
     sqlite3, or a backup; when it closes the file, the system takes the locks of SQLite away, and the file is destroyed: \
     give locks a file of their own, which nothing else opens";
const CLOSED: &str = "something else in this process has opened the database file and closed it: another copy of SQLite, such as \
     that of Python's sqlite3, or a backup; the system has taken the locks of SQLite away with that, so others may have \
     written at the same time, and the file may be damaged: give locks a file of their own, which nothing else opens";

/// What a client has found, which then does not use the file any more.
pub(super) type Finding = Arc<OnceLock<&'static str>>;

/// The descriptors of the files of one open connection.
#[derive(Debug)]
pub(super) struct Descriptors {
    files: [(OsString, Id); 2],
    /// Whether the system shows the locks of descriptors.
    shows_locks: bool,
    next: Cell<Instant>,
    finding: Finding,
}

impl Descriptors {
    /// Looks at a file that is to be opened. `is_first`: this process has no connection of lockwell.
    pub(super) fn refusal(path: &Path, is_first: bool) -> Option<&'static str> {
        let look = Look::at(&files(path)?);
        // Connections of the application may be by this copy of SQLite. Where there is another copy, they are
        // not.
        let by_others = is_first && look.count != [0; 2] && has_other_copy();
        if by_others { Some(OPEN) } else { look.complaint(false) }
    }

    /// Those of a connection that has just been opened, and has read something.
    pub(super) fn of(path: &Path, finding: &Finding) -> Result<Self, &'static str> {
        let files = files(path).unwrap_or_default();
        let look = Look::at(&files);
        let shows_locks = look.is_locked == [true; 2];
        let next = Cell::new(Instant::now() + EVERY);
        let new = Self { files, shows_locks, next, finding: Arc::clone(finding) };
        look.complaint(false).map_or(Ok(new), Err)
    }

    /// Looks now and then whether there are others.
    pub(super) fn check(&self) -> io::Result<()> {
        let now = Instant::now();
        if now >= self.next.get() {
            if let Some(why) = Look::at(&self.files).complaint(self.shows_locks) {
                self.finding.get_or_init(|| why);
            }
            self.next.set(Instant::now() + EVERY.max(now.elapsed() * SHARE));
        }
        self.finding.get().map_or(Ok(()), |why| Err(io::Error::other(*why)))
    }
}

/// The names and ids of the database and of its shared memory.
fn files(path: &Path) -> Option<[(OsString, Id); 2]> {
    let real = path.canonicalize().ok()?;
    let of = |path: &Path| Some((path.file_name()?.to_owned(), id(path).unwrap_or_default()));
    Some([of(&real)?, of(&beside(&real, "-shm"))?])
}

/// What the descriptors of this process say about both files.
#[derive(Debug, Default)]
struct Look {
    /// Whether somebody has opened one of them otherwise than SQLite does.
    is_plain: bool,
    count: [usize; 2],
    is_locked: [bool; 2],
}

impl Look {
    #[cfg(target_os = "linux")]
    fn at(files: &[(OsString, Id); 2]) -> Self {
        let mut look = Self::default();
        for open in std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten() {
            // Only these are asked for their ids: a file of another file system may not answer.
            let Ok(link) = std::fs::read_link(open.path()) else { continue };
            let Some(at) = files.iter().position(|(name, _)| link.file_name() == Some(name)) else {
                continue;
            };
            if files[at].1.is_none() || id(&open.path()).ok() != Some(files[at].1) {
                continue;
            }
            let info = Path::new("/proc/self/fdinfo").join(open.file_name());
            // It has been closed meanwhile.
            let Ok(info) = std::fs::read_to_string(info) else { continue };
            look.count[at] += 1;
            look.is_plain |= !is_by_sqlite(&info);
            look.is_locked[at] |= info.lines().any(|line| line.starts_with("lock:"));
        }
        look
    }

    #[cfg(not(target_os = "linux"))]
    fn at(_: &[(OsString, Id); 2]) -> Self {
        Self::default()
    }

    /// Why the connection that is open must not be used. `locks`: it must have locks.
    fn complaint(&self, locks: bool) -> Option<&'static str> {
        if self.is_plain || self.count[1] > 1 {
            return Some(OPEN);
        }
        (locks && self.is_locked != [true; 2]).then_some(CLOSED)
    }
}

/// Whether a descriptor with this entry in `/proc/self/fdinfo` may be one of SQLite.
#[cfg(target_os = "linux")]
fn is_by_sqlite(info: &str) -> bool {
    let flags =
        info.lines().find_map(|line| u32::from_str_radix(line.strip_prefix("flags:")?.trim(), 8).ok());
    flags.is_none_or(|flags| flags & rustix::fs::OFlags::NOFOLLOW.bits() != 0)
}

/// Whether a library with another copy of SQLite is loaded.
#[cfg(all(target_os = "linux", feature = "sqlite"))]
fn has_other_copy() -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut libraries = maps.lines().filter_map(|line| line.rsplit_once('/')).map(|(_, name)| name);
    libraries.any(|name| name.contains("sqlite3") && name.contains(".so"))
}

/// What is loaded may be the copy that lockwell uses.
#[cfg(not(all(target_os = "linux", feature = "sqlite")))]
fn has_other_copy() -> bool {
    false
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn what_is_open_is_counted_with_its_locks() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("locks.db");
        assert!(Descriptors::refusal(&path, true).is_none(), "there is no file");
        std::fs::write(&path, "").expect("a file");
        assert!(Descriptors::refusal(&path, true).is_none(), "nobody has it open");
        let other = std::fs::File::open(&path).expect("a file");
        assert_eq!(Descriptors::refusal(&path, false), Some(OPEN));
        let finding = Finding::default();
        assert_eq!(Descriptors::of(&path, &finding).err(), Some(OPEN));
        drop(other);
        assert!(Descriptors::refusal(&path, true).is_none());
    }

    #[test]
    fn the_flags_tell_who_has_opened_a_file() {
        assert!(!is_by_sqlite("pos:\t0\nflags:\t02100000\nmnt_id:\t30\n"));
        let flags = rustix::fs::OFlags::NOFOLLOW.bits() | 0o100_002;
        assert!(is_by_sqlite(&format!("pos:\t0\nflags:\t0{flags:o}\nmnt_id:\t30\n")));
        assert!(is_by_sqlite("nothing that is known"));
    }

    #[test]
    fn two_memories_are_two_copies_of_sqlite() {
        let look = Look { count: [2, 1], is_locked: [true; 2], ..Look::default() };
        assert_eq!(look.complaint(true), None);
        assert_eq!(Look { count: [2, 2], ..look }.complaint(true), Some(OPEN));
        let look = Look { count: [2, 1], is_locked: [true, false], ..Look::default() };
        assert_eq!((look.complaint(true), look.complaint(false)), (Some(CLOSED), None));
    }
}
