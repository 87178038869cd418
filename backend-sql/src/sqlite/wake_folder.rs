//! The folder of the sockets, which is opened once.
//!
//! Another user may own it, or the folder around it, and can put something else in its place at any moment,
//! or in the place of a socket. So the folder is checked by its descriptor, and what is in it is looked up,
//! given away and removed relative to that. By their paths, root could be made to do it to files elsewhere.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
#[cfg(target_os = "linux")]
use std::os::unix::fs::FileTypeExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::process::geteuid;

/// The longest path of a socket, without the zero at its end. It is 107 on Linux and 103 on some others.
const LONGEST_PATH: usize = 103;

/// The open folder.
#[derive(Debug)]
pub(super) struct Folder {
    file: File,
    path: PathBuf,
}

impl Folder {
    /// Opens the folder. It must be one, and no link to one.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(file) => Ok(Self { file: file.into(), path: path.to_owned() }),
            Err(Errno::NOTDIR | Errno::LOOP) => Err(refused(path)),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes the folder, if it is missing, for those who may write the database. Refuses one that somebody
    /// else may write to, or has made.
    pub(super) fn make(path: &Path, database: &fs::Metadata) -> io::Result<Self> {
        let is_new = match DirBuilder::new().mode(0o700).create(path) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
            Err(error) => return Err(error),
        };
        let folder = Self::open(path)?;
        if is_new && folder.is_ours()? {
            // Whoever may write the file may make a socket, and remove no socket of somebody else.
            let of_class = |shift: u32| if database.mode() >> shift & 2 == 0 { 0 } else { 7 << shift };
            let owner = new_owner(database);
            let is_given = fchown(&folder.file, owner, Some(database.gid())).is_ok();
            folder.file.set_permissions(permissions(0o1700 | of_class(3) | of_class(0), is_given))?;
        }
        folder.check(database)?;
        Ok(folder)
    }

    /// Whether this is a folder as it has just been made, and no older one that was put in its place. Others
    /// may have made their sockets in it already.
    fn is_ours(&self) -> io::Result<bool> {
        let found = self.file.metadata()?;
        if found.uid() != geteuid().as_raw() || found.mode() & 0o777 != 0o700 {
            return Ok(false);
        }
        for name in self.names()? {
            match self.stat(&name) {
                Ok(found) if !is_socket(&found) => return Ok(false),
                Ok(_) | Err(Errno::NOENT) => (),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    fn check(&self, database: &fs::Metadata) -> io::Result<()> {
        let folder = self.file.metadata()?;
        let is_made_by_a_writer = folder.uid() == database.uid()
            || folder.uid() == geteuid().as_raw()
            || folder.uid() == 0
            || (database.mode() & 0o020 != 0 && folder.gid() == database.gid())
            || database.mode() & 0o002 != 0;
        let is_open_to_others = folder.mode() & 0o022 & !database.mode() != 0;
        if is_made_by_a_writer && !is_open_to_others { Ok(()) } else { Err(refused(&self.path)) }
    }

    /// By which it was opened.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// A path that leads to this name in this folder. Elsewhere than on Linux it leads to what has the
    /// folder's name, and must be short.
    pub(super) fn path_of(&self, name: &str) -> io::Result<PathBuf> {
        if cfg!(target_os = "linux") {
            return Ok(format!("/proc/self/fd/{}/{name}", self.file.as_raw_fd()).into());
        }
        let path = self.path.join(name);
        if path.as_os_str().len() <= LONGEST_PATH {
            return Ok(path);
        }
        let text = format!("the path {} is too long for a socket", path.display());
        Err(io::Error::new(io::ErrorKind::InvalidInput, text))
    }

    /// Gives a socket that this process has made to those who may write the database, as far as this user may
    /// do that.
    pub(super) fn give(&self, name: &str, database: &fs::Metadata) -> io::Result<()> {
        let (owner, group, mode) = (new_owner(database), database.gid(), database.mode() & 0o666);
        self.give_socket(name, owner, group, mode)
    }

    #[cfg(target_os = "linux")]
    fn give_socket(&self, name: &str, owner: Option<u32>, group: u32, mode: u32) -> io::Result<()> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let socket = File::from(rustix::fs::openat(&self.file, name, flags, Mode::empty())?);
        let found = socket.metadata()?;
        // A file of this user with two names may have been linked from elsewhere.
        let is_ours = found.uid() == geteuid().as_raw() && found.nlink() == 1;
        if !found.file_type().is_socket() || !is_ours {
            return Err(refused(&self.path));
        }
        let path = format!("/proc/self/fd/{}", socket.as_raw_fd());
        let is_given = std::os::unix::fs::chown(&path, owner, Some(group)).is_ok();
        fs::set_permissions(&path, permissions(mode, is_given))
    }

    /// Links are not followed, but between the checks a link to another file of this user could be put there.
    #[cfg(not(target_os = "linux"))]
    fn give_socket(&self, name: &str, owner: Option<u32>, group: u32, mode: u32) -> io::Result<()> {
        use rustix::fs::{Gid, RawMode, Uid, chmodat, chownat};
        let found = self.stat(name)?;
        if !is_socket(&found) || found.st_uid != geteuid().as_raw() || found.st_nlink != 1 {
            return Err(refused(&self.path));
        }
        let (owner, group) = (owner.map(Uid::from_raw), Some(Gid::from_raw(group)));
        let is_given = chownat(&self.file, name, owner, group, AtFlags::SYMLINK_NOFOLLOW).is_ok();
        let mode = Mode::from_raw_mode(permissions(mode, is_given).mode() as RawMode);
        Ok(chmodat(&self.file, name, mode, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    pub(super) fn names(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.file)? {
            let name = entry?.file_name().to_bytes().to_owned();
            if name != b"." && name != b".." {
                names.push(OsString::from_vec(name));
            }
        }
        Ok(names)
    }

    /// How old a socket is. `None`: it is something else.
    pub(super) fn age(&self, name: &str) -> io::Result<Option<Duration>> {
        let found = self.stat(name)?;
        let made = UNIX_EPOCH + Duration::from_secs(found.st_mtime.try_into().unwrap_or_default());
        let age = SystemTime::now().duration_since(made).unwrap_or_default();
        Ok(is_socket(&found).then_some(age))
    }

    /// Removes a file from the folder.
    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.file, name, AtFlags::empty())?)
    }

    fn stat(&self, name: impl rustix::path::Arg) -> rustix::io::Result<Stat> {
        rustix::fs::statat(&self.file, name, AtFlags::SYMLINK_NOFOLLOW)
    }
}

fn is_socket(found: &Stat) -> bool {
    FileType::from_raw_mode(found.st_mode) == FileType::Socket
}

/// To whom a new file is given. `None`: it stays as it is, since only root may give files away.
fn new_owner(database: &fs::Metadata) -> Option<u32> {
    geteuid().is_root().then_some(database.uid())
}

/// A file that stays in another group is for this user alone.
fn permissions(mode: u32, is_given: bool) -> Permissions {
    Permissions::from_mode(if is_given { mode } else { mode & 0o1700 })
}

fn refused(path: &Path) -> io::Error {
    let text = format!("{} was not made for the sockets of the users of this file", path.display());
    io::Error::new(io::ErrorKind::PermissionDenied, text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixDatagram;

    use super::*;

    struct Place {
        outer: tempfile::TempDir,
        database: fs::Metadata,
    }

    impl Place {
        fn new() -> Self {
            let outer = tempfile::tempdir().unwrap();
            fs::write(outer.path().join("locks.db"), "").unwrap();
            let database = fs::metadata(outer.path().join("locks.db")).unwrap();
            Self { outer, database }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.outer.path().join(name)
        }

        /// A file of this user that nobody else may read.
        fn secret(&self) -> PathBuf {
            let path = self.path("secret");
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
            path
        }
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn what_is_in_the_place_of_a_socket_is_not_given_away() {
        let place = Place::new();
        let folder = Folder::make(&place.path("wake"), &place.database).unwrap();
        let secret = place.secret();
        symlink(&secret, place.path("wake/symbolic")).unwrap();
        fs::hard_link(&secret, place.path("wake/hard")).unwrap();
        let other = UnixDatagram::bind(place.path("other")).unwrap();
        fs::set_permissions(place.path("other"), Permissions::from_mode(0o600)).unwrap();
        fs::hard_link(place.path("other"), place.path("wake/other")).unwrap();
        for name in ["symbolic", "hard", "other"] {
            let error = folder.give(name, &place.database).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{name}");
        }
        assert_eq!((mode(&secret), mode(&place.path("other"))), (0o600, 0o600));
        drop(other);
    }

    /// A folder that is there already, under a name at which another folder has just been made.
    #[test]
    fn what_is_in_the_place_of_the_folder_is_not_given_away() {
        let place = Place::new();
        fs::create_dir(place.path("secrets")).unwrap();
        fs::set_permissions(place.path("secrets"), Permissions::from_mode(0o700)).unwrap();
        assert!(Folder::open(&place.path("secrets")).unwrap().is_ours().unwrap());
        fs::write(place.path("secrets/one"), "").unwrap();
        assert!(!Folder::open(&place.path("secrets")).unwrap().is_ours().unwrap());
        symlink(place.path("secrets"), place.path("wake")).unwrap();
        let error = Folder::open(&place.path("wake")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn nothing_is_removed_in_the_place_of_the_folder() {
        let place = Place::new();
        let folder = Folder::make(&place.path("wake"), &place.database).unwrap();
        fs::rename(place.path("wake"), place.path("moved")).unwrap();
        symlink(place.outer.path(), place.path("wake")).unwrap();
        let secret = place.secret();
        assert_eq!(folder.remove("secret").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(secret.exists() && folder.names().unwrap().is_empty());
        let made = UnixDatagram::bind(folder.path_of("socket").unwrap()).unwrap();
        assert!(!cfg!(target_os = "linux") || place.path("moved/socket").exists());
        drop(made);
    }
}
