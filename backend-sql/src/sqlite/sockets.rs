//! The sockets by which a release wakes the next waiter, and nobody else.
//!
//! Each client that waits has a datagram socket in a folder beside the database, `FILE-wake`. The socket's name
//! is the id of the client, which is stored with each place in the queue. A message is a hint: whoever gets one
//! reads the lock's row, which says whether it has the lock. So a lost message costs time, and one from
//! somebody else costs a statement.
//!
//! Whoever may write the database may write to the sockets, and nobody else.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::geteuid;
use tokio::io::Interest;
use tokio::net::UnixDatagram as AsyncDatagram;
use uuid::Uuid;

/// The longest path of a socket, without the zero at its end. It is 107 on Linux and 103 on some others.
const LONGEST_PATH: usize = 103;
/// A socket that nobody has bound is removed if it is at least that old. A socket's file is there a moment
/// before the socket is bound to it.
const STALE: Duration = Duration::from_secs(10);
/// So many messages that come without a pause may have filled the socket's buffer, so others may be missing. A
/// socket of Linux takes eleven.
const MANY: u32 = 8;
/// How often the folder is made anew if the last client that used it removes it at the same time.
const ATTEMPTS: u32 = 10;

/// What a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// The waiter's place.
    pub(super) ticket: i64,
    /// The token of the grant that a release has made for the waiter; 0 if it has made none.
    pub(super) token: i64,
}

impl Message {
    const LENGTH: usize = 16;

    fn bytes(self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        bytes[..8].copy_from_slice(&self.ticket.to_le_bytes());
        bytes[8..].copy_from_slice(&self.token.to_le_bytes());
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (ticket, token) = bytes.split_first_chunk::<8>()?;
        let token: &[u8; 8] = token.try_into().ok()?;
        Some(Self { ticket: i64::from_le_bytes(*ticket), token: i64::from_le_bytes(*token) })
    }
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// The socket has it, or so many others that its client asks about all of its places.
    Delivered,
    /// Nobody has this socket: the client has ended.
    Gone,
    /// The client may be there, and does not get this message.
    Refused,
}

/// What has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Received {
    One(Message),
    /// Messages may have been lost.
    Many,
}

/// The sockets of the clients of one database.
#[derive(Clone, Debug)]
pub(super) struct Sockets {
    /// The database. Not a symbolic link to it.
    database: PathBuf,
    folder: PathBuf,
}

impl Sockets {
    pub(super) fn of(database: &Path) -> io::Result<Self> {
        let database = database.canonicalize()?;
        let mut folder = database.clone().into_os_string();
        folder.push("-wake");
        Ok(Self { database, folder: folder.into() })
    }

    /// Sends a message to a client. It never waits.
    pub(super) fn send(&self, client: Uuid, message: Message) -> Sent {
        let sent = (|| {
            let address = Address::of(&self.folder, &name(client))?;
            let socket = UnixDatagram::unbound()?;
            socket.set_nonblocking(true)?;
            socket.send_to(&message.bytes(), &address.path).map(drop)
        })();
        match sent.map_err(|error| error.kind()) {
            Ok(()) | Err(io::ErrorKind::WouldBlock) => Sent::Delivered,
            Err(io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => Sent::Gone,
            Err(_) => Sent::Refused,
        }
    }

    /// Makes the socket of a client. Removes those of clients that are gone.
    pub(super) fn bind(&self, client: Uuid) -> io::Result<Inbox> {
        let name = name(client);
        let mut attempts = 0;
        let (socket, address) = loop {
            attempts += 1;
            self.make_folder()?;
            let address = Address::of(&self.folder, &name)?;
            match UnixDatagram::bind(&address.path) {
                Ok(socket) => break (socket, address),
                Err(error) if error.kind() == io::ErrorKind::NotFound && attempts < ATTEMPTS => (),
                Err(error) => return Err(error),
            }
        };
        let inbox = Inbox {
            file: address.path.clone(),
            process: std::process::id(),
            row: 0,
            socket: {
                socket.set_nonblocking(true)?;
                AsyncDatagram::from_std(socket)?
            },
            sockets: self.clone(),
            _address: address,
        };
        let database = fs::metadata(&self.database)?;
        give(&inbox.file, &database, database.mode() & 0o666)?;
        self.remove_stale();
        Ok(inbox)
    }

    /// Makes the folder, if it is missing. Refuses one that somebody else may write to, or has made.
    fn make_folder(&self) -> io::Result<()> {
        let database = fs::metadata(&self.database)?;
        match DirBuilder::new().mode(0o700).create(&self.folder) {
            Ok(()) => {
                // Whoever may write the file may make a socket, and remove no socket of somebody else.
                let of_class = |shift: u32| if database.mode() >> shift & 2 == 0 { 0 } else { 7 << shift };
                give(&self.folder, &database, 0o1700 | of_class(3) | of_class(0))?;
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => (),
            Err(error) => return Err(error),
        }
        let folder = fs::symlink_metadata(&self.folder)?;
        let is_made_by_a_writer = folder.uid() == database.uid()
            || folder.uid() == geteuid().as_raw()
            || folder.uid() == 0
            || (database.mode() & 0o020 != 0 && folder.gid() == database.gid())
            || database.mode() & 0o002 != 0;
        let is_open_to_others = folder.mode() & 0o022 & !database.mode() != 0;
        if folder.is_dir() && is_made_by_a_writer && !is_open_to_others {
            return Ok(());
        }
        let text =
            format!("{} was not made for the sockets of the users of this file", self.folder.display());
        Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
    }

    fn remove_stale(&self) {
        let Ok(entries) = fs::read_dir(&self.folder) else { return };
        for entry in entries.filter_map(Result::ok) {
            // Others may remove it, too.
            if self.is_stale(&entry).unwrap_or(false) && fs::remove_file(entry.path()).is_ok() {
                tracing::debug!(socket = %entry.path().display(), "the socket of a client that is gone was removed");
            }
        }
    }

    fn is_stale(&self, entry: &fs::DirEntry) -> io::Result<bool> {
        let found = entry.metadata()?;
        if !found.file_type().is_socket() || found.modified()?.elapsed().is_ok_and(|age| age < STALE) {
            return Ok(false);
        }
        let Some(name) = entry.file_name().to_str().map(str::to_owned) else { return Ok(false) };
        let address = Address::of(&self.folder, &name)?;
        let tried = UnixDatagram::unbound()?.connect(&address.path);
        Ok(tried.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused))
    }
}

/// The name of a client's socket.
fn name(client: Uuid) -> String {
    client.simple().to_string()
}

/// Gives a new file to the users of the database, as far as this user may do that.
fn give(path: &Path, database: &fs::Metadata, mode: u32) -> io::Result<()> {
    let owner = geteuid().is_root().then_some(database.uid());
    // A file that stays in another group is for this user alone.
    let is_given = chown(path, owner, Some(database.gid())).is_ok();
    fs::set_permissions(path, Permissions::from_mode(if is_given { mode } else { mode & 0o1700 }))
}

/// The path of a socket, which must be short.
struct Address {
    path: PathBuf,
    /// The folder, if the path begins with its descriptor.
    _folder: Option<File>,
}

impl Address {
    fn of(folder: &Path, name: &str) -> io::Result<Self> {
        let path = folder.join(name);
        if path.as_os_str().len() <= LONGEST_PATH {
            return Ok(Self { path, _folder: None });
        }
        if !cfg!(target_os = "linux") {
            let text = format!("the path {} is too long for a socket", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let folder = File::open(folder)?;
        let path = PathBuf::from(format!("/proc/self/fd/{}/{name}", folder.as_raw_fd()));
        Ok(Self { path, _folder: Some(folder) })
    }
}

/// The socket of a client. Its file is removed when this is dropped.
pub struct Inbox {
    socket: AsyncDatagram,
    file: PathBuf,
    /// A child of this process, which has the socket as well, must not remove the file.
    process: u32,
    /// How many messages have come without a pause.
    row: u32,
    sockets: Sockets,
    /// The file's path may depend on it.
    _address: Address,
}

impl Inbox {
    /// The next message.
    pub(super) async fn receive(&mut self) -> io::Result<Received> {
        loop {
            let mut bytes = [0; Message::LENGTH + 1];
            match self.socket.try_recv(&mut bytes) {
                Ok(length) => {
                    self.row += 1;
                    if let Some(message) = Message::parse(&bytes[..length]) {
                        return Ok(Received::One(message));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if std::mem::take(&mut self.row) >= MANY {
                        return Ok(Received::Many);
                    }
                    self.socket.ready(Interest::READABLE).await?;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return;
        }
        if let Err(error) = fs::remove_file(&self.file) {
            tracing::debug!(%error, "the socket of a client was not removed");
        }
        // It is not empty while others use it.
        if let Ok(()) = fs::remove_dir(&self.sockets.folder) {
            tracing::trace!("the folder of the sockets was removed");
        }
    }
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Inbox").field(&self.file).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::time::SystemTime;

    use super::*;

    const CLIENT: Uuid = Uuid::from_u128(1);
    const MESSAGE: Message = Message { ticket: 7, token: -9 };

    /// A database in a folder of its own, and its sockets.
    fn sockets(below: &str) -> (tempfile::TempDir, Sockets) {
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path().join(below);
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("locks.db");
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        let sockets = Sockets::of(&file).unwrap();
        (outer, sockets)
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    #[tokio::test]
    async fn a_message_reaches_its_client() {
        // The second path is too long for a socket.
        for below in ["a".to_owned(), "long/".repeat(40)] {
            let (_outer, sockets) = sockets(&below);
            assert_eq!(sockets.send(CLIENT, MESSAGE), Sent::Gone);
            let mut inbox = sockets.bind(CLIENT).unwrap();
            assert_eq!(sockets.send(Uuid::from_u128(2), MESSAGE), Sent::Gone);
            assert_eq!(sockets.send(CLIENT, MESSAGE), Sent::Delivered);
            assert_eq!(inbox.receive().await.unwrap(), Received::One(MESSAGE));
            drop(inbox);
            assert_eq!(sockets.send(CLIENT, MESSAGE), Sent::Gone);
            assert!(!sockets.folder.exists(), "the last one removes the folder");
        }
    }

    #[tokio::test]
    async fn whoever_gets_many_messages_is_told_that_some_are_missing() {
        let (_outer, sockets) = sockets("a");
        let mut inbox = sockets.bind(CLIENT).unwrap();
        for ticket in 0..2000 {
            assert_eq!(sockets.send(CLIENT, Message { ticket, token: 0 }), Sent::Delivered);
        }
        let mut received = 0;
        while inbox.receive().await.unwrap() != Received::Many {
            received += 1;
        }
        assert!((1..2000).contains(&received), "{received}");
        assert_eq!(sockets.send(CLIENT, MESSAGE), Sent::Delivered);
        assert_eq!(inbox.receive().await.unwrap(), Received::One(MESSAGE));
    }

    /// Other lengths come from others.
    #[tokio::test]
    async fn what_is_no_message_is_ignored() {
        let (_outer, sockets) = sockets("a");
        let mut inbox = sockets.bind(CLIENT).unwrap();
        let stranger = UnixDatagram::unbound().unwrap();
        for bytes in [&[][..], &[1; 15], &[1; 17], &[1; 4000]] {
            stranger.send_to(bytes, &inbox.file).unwrap();
        }
        assert_eq!(sockets.send(CLIENT, MESSAGE), Sent::Delivered);
        assert_eq!(inbox.receive().await.unwrap(), Received::One(MESSAGE));
    }

    #[tokio::test]
    async fn only_who_may_write_the_file_may_send() {
        for (file, folder, socket) in [(0o644, 0o1700, 0o644), (0o660, 0o1770, 0o660), (0o666, 0o1777, 0o666)]
        {
            let (_outer, sockets) = sockets("a");
            fs::set_permissions(&sockets.database, Permissions::from_mode(file)).unwrap();
            let inbox = sockets.bind(CLIENT).unwrap();
            assert_eq!((mode(&sockets.folder), mode(&inbox.file)), (folder, socket), "{file:o}");
        }
    }

    #[tokio::test]
    async fn a_folder_of_somebody_else_is_refused() {
        let (outer, sockets) = sockets("a");
        fs::create_dir(&sockets.folder).unwrap();
        fs::set_permissions(&sockets.folder, Permissions::from_mode(0o777)).unwrap();
        assert_eq!(sockets.bind(CLIENT).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        fs::remove_dir(&sockets.folder).unwrap();
        symlink(outer.path(), &sockets.folder).unwrap();
        assert_eq!(sockets.bind(CLIENT).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }

    #[tokio::test]
    async fn sockets_of_clients_that_are_gone_are_removed() {
        let (_outer, sockets) = sockets("a");
        let _alive = sockets.bind(CLIENT).unwrap();
        // A socket that is closed leaves its file.
        let old = |number: u128, age: u64| {
            let path = sockets.folder.join(name(Uuid::from_u128(number)));
            drop(UnixDatagram::bind(&path).unwrap());
            age_by(&path, age);
            path
        };
        let (stale, fresh) = (old(2, 60), old(3, 0));
        age_by(&sockets.folder.join(name(CLIENT)), 60);
        let _next = sockets.bind(Uuid::from_u128(4)).unwrap();
        assert!(!stale.exists() && fresh.exists());
        assert_eq!(sockets.send(CLIENT, MESSAGE), Sent::Delivered);
    }

    /// Makes a file look older, in seconds.
    fn age_by(path: &Path, age: u64) {
        let then = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() - age;
        let then = rustix::fs::Timespec { tv_sec: then.cast_signed(), tv_nsec: 0 };
        let times = rustix::fs::Timestamps { last_access: then, last_modification: then };
        rustix::fs::utimensat(rustix::fs::CWD, path, &times, rustix::fs::AtFlags::empty()).unwrap();
    }
}
