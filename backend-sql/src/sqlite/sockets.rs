//! The sockets by which a release wakes the next waiter, and nobody else.
//!
//! Each client that waits has a datagram socket in a folder beside the database, `FILE-wake`. The socket's
//! name is the id of the client, which is stored with each place in the queue. A message that has a half of
//! the owner's id is a grant. Any other is a hint: whoever gets one reads the lock's row, which says whether
//! it has the lock. So a lost message costs time, and one from somebody else costs a statement.
//!
//! Whoever may write the database may write to the sockets, and nobody else.

use std::cell::RefCell;
use std::fs;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lockwell_core::backend::Process;
use tokio::io::Interest;
use tokio::net::UnixDatagram as AsyncDatagram;
use uuid::Uuid;

use super::wake_folder::Folder;

/// A socket that nobody has bound is removed if it is at least that old. A socket's file is there a moment
/// before the socket is bound to it.
const STALE: Duration = Duration::from_secs(10);
/// So many messages that come without a pause may have filled the socket's buffer, so others may be missing.
/// A socket of Linux takes eleven.
const MANY: u32 = 8;
/// How often the folder is made anew if the last client that used it removes it at the same time. An attempt
/// is a few calls of the system. Where many clients come and go at once, one of them can lose ten times in a
/// row.
const ATTEMPTS: u32 = 200;

/// What a message says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Message {
    /// The waiter's place.
    pub(super) ticket: i64,
    /// The token of the grant that a release has made for the waiter; 0 if it has made none.
    pub(super) token: i64,
    /// The end of the provisional lease, by the clock of the database.
    pub(super) ends: i64,
    /// A half of the owner's id: only who can read the database knows it, and nobody can release the lock
    /// with it.
    pub(super) proof: u64,
    /// When the release was sent, by the boot clock, which all processes of a host share.
    pub(super) sent: u64,
}

impl Message {
    /// That of a hint.
    const SHORT: usize = 16;
    const LONG: usize = 40;

    fn bytes(self) -> Vec<u8> {
        let Self { ticket, token, ends, proof, sent } = self;
        let numbers = [ticket.cast_unsigned(), token.cast_unsigned(), ends.cast_unsigned(), proof, sent];
        let mut bytes: Vec<u8> = numbers.into_iter().flat_map(u64::to_le_bytes).collect();
        bytes.truncate(if proof == 0 { Self::SHORT } else { Self::LONG });
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        if !matches!(bytes.len(), Self::SHORT | Self::LONG) {
            return None;
        }
        let (numbers, _) = bytes.as_chunks::<8>();
        let mut numbers = numbers.iter().map(|number| u64::from_le_bytes(*number));
        let mut next = || numbers.next().unwrap_or_default();
        let (ticket, token, ends) = (next().cast_signed(), next().cast_signed(), next().cast_signed());
        Some(Self { ticket, token, ends, proof: next(), sent: next() })
    }
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// The socket has it, or so many others that its client asks about all of its places.
    Delivered,
    /// Nobody has this socket: the client has ended.
    Gone,
    /// The client may be there, and this user may not send to it.
    Refused,
    /// The client may be there, and does not get this message. It may get the next one.
    Failed,
}

impl Sent {
    fn of(sent: io::Result<()>) -> Self {
        match sent.map_err(|error| error.kind()) {
            Ok(()) | Err(io::ErrorKind::WouldBlock) => Self::Delivered,
            Err(io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => Self::Gone,
            Err(io::ErrorKind::PermissionDenied) => Self::Refused,
            // There are too many open files, for example.
            Err(_) => Self::Failed,
        }
    }
}

/// What has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Received {
    One(Message),
    /// Messages may have been lost.
    Many,
}

/// The sockets of the clients of one database.
#[derive(Debug)]
pub(super) struct Sockets {
    /// The database. Not a symbolic link to it.
    database: PathBuf,
    folder: PathBuf,
    /// What was used to send the last message.
    outlet: RefCell<Option<Outlet>>,
}

/// What messages are sent with. To open both for each message costs more than to send it.
#[derive(Debug)]
struct Outlet {
    folder: Folder,
    socket: UnixDatagram,
}

impl Outlet {
    fn open(folder: &Path) -> io::Result<Self> {
        let folder = Folder::open(folder)?;
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok(Self { folder, socket })
    }

    fn send(&self, client: Uuid, message: Message) -> io::Result<()> {
        self.socket.send_to(&message.bytes(), self.folder.path_of(&name(client))?).map(drop)
    }
}

impl Sockets {
    pub(super) fn of(database: &Path) -> io::Result<Self> {
        let database = database.canonicalize()?;
        let mut folder = database.clone().into_os_string();
        folder.push("-wake");
        Ok(Self { database, folder: folder.into(), outlet: RefCell::new(None) })
    }

    /// Sends a message to a client. It never waits.
    pub(super) fn send(&self, client: Uuid, message: Message) -> Sent {
        let mut outlet = self.outlet.borrow_mut();
        let sent = outlet.as_ref().map(|outlet| Sent::of(outlet.send(client, message)));
        if sent == Some(Sent::Delivered) {
            return Sent::Delivered;
        }
        // The folder may have been removed, and made anew, since it was opened.
        *outlet = None;
        Sent::of(Outlet::open(&self.folder).and_then(|open| outlet.insert(open).send(client, message)))
    }

    /// Makes the socket of a client. Removes those of clients that are gone.
    pub(super) fn bind(&self, client: Uuid) -> io::Result<Inbox> {
        let database = fs::metadata(&self.database)?;
        let mut attempts = 1;
        loop {
            match self.try_bind(client, &database) {
                Err(error) if error.kind() == io::ErrorKind::NotFound && attempts < ATTEMPTS => attempts += 1,
                bound => return bound,
            }
        }
    }

    /// Fails with `NotFound` if the last client that used the folder removes it meanwhile.
    fn try_bind(&self, client: Uuid, database: &fs::Metadata) -> io::Result<Inbox> {
        let name = name(client);
        let folder = Folder::make(&self.folder, database)?;
        let socket = UnixDatagram::bind(folder.path_of(&name)?)?;
        let process = Process::this();
        socket.set_nonblocking(true)?;
        let socket = AsyncDatagram::from_std(socket)?;
        let inbox = Inbox { socket, name, folder, process, row: 0 };
        inbox.folder.give(&inbox.name, database)?;
        remove_stale(&inbox.folder);
        Ok(inbox)
    }
}

fn remove_stale(folder: &Folder) {
    for name in folder.names().unwrap_or_default() {
        let Some(name) = name.to_str() else { continue };
        // Others may remove it, too.
        if is_stale(folder, name).unwrap_or(false) && folder.remove(name).is_ok() {
            tracing::debug!(lockwell.socket = name, "the socket of a client that is gone was removed");
        }
    }
}

fn is_stale(folder: &Folder, name: &str) -> io::Result<bool> {
    if folder.age(name)?.is_none_or(|age| age < STALE) {
        return Ok(false);
    }
    let tried = UnixDatagram::unbound()?.connect(folder.path_of(name)?);
    Ok(tried.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused))
}

/// The name of a client's socket.
fn name(client: Uuid) -> String {
    client.simple().to_string()
}

/// The socket of a client. Its file is removed when this is dropped.
pub struct Inbox {
    socket: AsyncDatagram,
    name: String,
    folder: Folder,
    /// A child of this process, which has the socket as well, must not remove the file.
    process: Process,
    /// How many messages have come without a pause.
    row: u32,
}

impl Inbox {
    /// The next message.
    pub(super) async fn receive(&mut self) -> io::Result<Received> {
        loop {
            let mut bytes = [0; Message::LONG + 1];
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
        if self.process != Process::this() {
            return;
        }
        if let Err(error) = self.folder.remove(&self.name) {
            tracing::debug!(%error, "the socket of a client was not removed");
        }
        // It is not empty while others use it.
        if let Ok(()) = fs::remove_dir(self.folder.path()) {
            tracing::trace!("the folder of the sockets was removed");
        }
    }
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Inbox").field(&self.folder.path().join(&self.name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::time::SystemTime;

    use super::*;

    const CLIENT: Uuid = Uuid::from_u128(1);
    const MESSAGE: Message = Message { ticket: 7, token: -9, ends: -3, proof: u64::MAX, sent: 5 };

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
            assert_eq!(sockets.send(CLIENT, Message { ticket, ..Message::default() }), Sent::Delivered);
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
        for bytes in [&[][..], &[1; 15], &[1; 17], &[1; 39], &[1; 41], &[1; 4000]] {
            stranger.send_to(bytes, sockets.folder.join(&inbox.name)).unwrap();
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
            assert_eq!(
                (mode(&sockets.folder), mode(&sockets.folder.join(&inbox.name))),
                (folder, socket),
                "{file:o}"
            );
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

    /// What an attacker may put in the place of the folder is not touched.
    #[tokio::test]
    async fn a_link_in_the_place_of_the_folder_keeps_what_it_leads_to() {
        let (outer, sockets) = sockets("a");
        let database = fs::metadata(&sockets.database).unwrap();
        let folder = Folder::make(&sockets.folder, &database).unwrap();
        let elsewhere = outer.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        let shadow = elsewhere.join("shadow");
        for path in [&shadow, &sockets.folder.join("shadow")] {
            drop(UnixDatagram::bind(path).unwrap());
            age_by(path, 60);
        }
        fs::rename(&sockets.folder, outer.path().join("moved")).unwrap();
        symlink(&elsewhere, &sockets.folder).unwrap();
        remove_stale(&folder);
        assert!(shadow.exists() && !outer.path().join("moved/shadow").exists());
    }

    /// The last client that goes removes the folder, and the next one may come at the same time.
    #[tokio::test]
    async fn clients_come_and_go_together() {
        let (_outer, sockets) = sockets("a");
        let clients: Vec<_> = (0..3)
            .map(|client| {
                let sockets = Sockets::of(&sockets.database).unwrap();
                tokio::task::spawn_blocking(move || {
                    (0..700).try_for_each(|_| sockets.bind(Uuid::from_u128(client)).map(drop))
                })
            })
            .collect();
        for client in clients {
            client.await.unwrap().expect("a socket, each time");
        }
    }

    #[test]
    fn only_a_refusal_is_for_good() {
        use rustix::io::Errno;
        for (error, sent) in [
            (Errno::ACCESS, Sent::Refused),
            (Errno::PERM, Sent::Refused),
            (Errno::MFILE, Sent::Failed),
            (Errno::NFILE, Sent::Failed),
            (Errno::NOBUFS, Sent::Failed),
            (Errno::NOENT, Sent::Gone),
            (Errno::CONNREFUSED, Sent::Gone),
            (Errno::AGAIN, Sent::Delivered),
        ] {
            assert_eq!(Sent::of(Err(error.into())), sent, "{error}");
        }
    }

    /// Makes a file look older, in seconds.
    fn age_by(path: &Path, age: u64) {
        let then = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() - age;
        let then = rustix::fs::Timespec { tv_sec: then.cast_signed(), tv_nsec: 0 };
        let times = rustix::fs::Timestamps { last_access: then, last_modification: then };
        rustix::fs::utimensat(rustix::fs::CWD, path, &times, rustix::fs::AtFlags::empty()).unwrap();
    }
}
