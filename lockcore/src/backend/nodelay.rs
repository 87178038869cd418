//! Sets `TCP_NODELAY` on sockets that another crate has opened, on Linux.
//!
//! A client crate that writes a message in parts and does not set `TCP_NODELAY` can lose time with each
//! message: the kernel holds the second part back until the server has acknowledged the first one (Nagle's
//! algorithm, RFC 896). The server does that with its answer, or after some 40 ms. Such crates do not hand
//! out their sockets. So this module finds them among the open files of this process, by their peers. Another
//! connection of the same process to such a peer gets the option, too.
//!
//! The option changes the speed only. Nothing else changes where it cannot be set: on other systems, before
//! Linux 5.6, and where system calls are filtered, as with the default profile of Docker.

use std::io;
use std::net::SocketAddr;

/// The sockets of this process that are connected to some peers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct NoDelay {
    /// Their number.
    pub sockets: usize,
    /// How many of them did not have the option when they were found.
    pub lacking: usize,
}

/// Whether this process can set the option on sockets that others have opened.
pub fn can_set_nodelay() -> bool {
    for_each_socket(|_| false, |_| Ok(())).is_ok()
}

/// Sets `TCP_NODELAY` on the sockets of this process whose peers `is_peer` accepts. It reads the list of the
/// open files of the process, and blocks for that time.
///
/// # Errors
/// `Unsupported` where the option cannot be set (see [`can_set_nodelay`]), and the errors of the system
/// calls.
pub fn set_nodelay(is_peer: impl Fn(&SocketAddr) -> bool) -> io::Result<NoDelay> {
    let mut found = NoDelay::default();
    for_each_socket(is_peer, |socket| {
        found.sockets += 1;
        if !has_nodelay(socket)? {
            found.lacking += 1;
            turn_on(socket)?;
        }
        Ok(())
    })?;
    Ok(found)
}

/// Looks for such sockets, and changes nothing.
///
/// # Errors
/// As [`set_nodelay`].
pub fn look_for_nodelay(is_peer: impl Fn(&SocketAddr) -> bool) -> io::Result<NoDelay> {
    let mut found = NoDelay::default();
    for_each_socket(is_peer, |socket| {
        found.sockets += 1;
        found.lacking += usize::from(!has_nodelay(socket)?);
        Ok(())
    })?;
    Ok(found)
}

#[cfg(target_os = "linux")]
use self::linux::{for_each_socket, has_nodelay, turn_on};
#[cfg(not(target_os = "linux"))]
use self::other::{for_each_socket, has_nodelay, turn_on};

#[cfg(not(target_os = "linux"))]
mod other {
    use std::io;
    use std::net::SocketAddr;

    /// There are no duplicates of sockets on this system.
    pub(super) enum Socket {}

    pub(super) fn for_each_socket(
        _: impl Fn(&SocketAddr) -> bool,
        _: impl FnMut(&Socket) -> io::Result<()>,
    ) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "sockets are found on Linux only"))
    }

    pub(super) fn has_nodelay(socket: &Socket) -> io::Result<bool> {
        match *socket {}
    }

    pub(super) fn turn_on(socket: &Socket) -> io::Result<()> {
        match *socket {}
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::net::SocketAddr;
    use std::os::fd::OwnedFd;
    use std::{fs, io};

    use rustix::fs::{FileType, fstat};
    use rustix::io::Errno;
    use rustix::net::getpeername;
    use rustix::net::sockopt::{set_tcp_nodelay, tcp_nodelay};
    use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

    pub(super) fn has_nodelay(socket: &OwnedFd) -> io::Result<bool> {
        Ok(tcp_nodelay(socket)?)
    }

    pub(super) fn turn_on(socket: &OwnedFd) -> io::Result<()> {
        Ok(set_tcp_nodelay(socket, true)?)
    }

    /// Calls `work` with a duplicate of each socket of this process that is connected to such a peer. There
    /// is one duplicate at a time: a process with many connections may have few files left.
    pub(super) fn for_each_socket(
        is_peer: impl Fn(&SocketAddr) -> bool,
        mut work: impl FnMut(&OwnedFd) -> io::Result<()>,
    ) -> io::Result<()> {
        if may_be_filtered() {
            let text = "the system calls of this process may be filtered";
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        let process = pidfd_open(getpid(), PidfdFlags::empty())?;
        for entry in fs::read_dir("/proc/self/fd")? {
            let entry = entry?;
            let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let is_socket = fs::read_link(entry.path())
                .is_ok_and(|target| target.to_str().is_some_and(|target| target.starts_with("socket:")));
            if !is_socket {
                continue;
            }
            let socket = match pidfd_getfd(&process, number, PidfdGetfdFlags::empty()) {
                Err(Errno::BADF) => continue,
                answer => answer?,
            };
            // The socket may have been closed meanwhile, and its number used for a file. Closing any
            // descriptor of a file ends all locks of this process on that file (fcntl), such as those of
            // SQLite. So the duplicate stays open.
            if !fstat(&socket).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Socket) {
                std::mem::forget(socket);
                continue;
            }
            let peer = getpeername(&socket).ok().flatten().and_then(|peer| SocketAddr::try_from(peer).ok());
            if peer.is_some_and(|peer| is_peer(&peer)) {
                work(&socket)?;
            }
        }
        Ok(())
    }

    /// Whether there is a filter of system calls (seccomp), or that is not known. A filter may kill the
    /// process for a call that is not on its list, as in a unit of systemd with
    /// `SystemCallFilter=@system-service`. So nothing is tried then.
    fn may_be_filtered() -> bool {
        let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
        !status.lines().any(|line| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() == "0"))
    }

    #[cfg(test)]
    mod tests {
        use std::net::{TcpListener, TcpStream};
        use std::os::fd::AsRawFd;
        use std::sync::Mutex;

        use super::*;
        use crate::backend::lock;
        use crate::backend::nodelay::{NoDelay, can_set_nodelay, set_nodelay};

        /// One test at a time: each sees the duplicates of the other one.
        static ALONE: Mutex<()> = Mutex::new(());

        #[test]
        fn only_connections_to_the_peers_are_changed() {
            let _alone = lock(&ALONE);
            if !can_set_nodelay() {
                return;
            }
            let listen = || TcpListener::bind("127.0.0.1:0").unwrap();
            let (server, other) = (listen(), listen());
            let connect = |to: &TcpListener| TcpStream::connect(to.local_addr().unwrap()).unwrap();
            let (ours, foreign) = (connect(&server), connect(&other));
            let address = server.local_addr().unwrap();
            let set = || set_nodelay(|peer| *peer == address).unwrap();
            assert_eq!(set(), NoDelay { sockets: 1, lacking: 1 });
            assert!(ours.nodelay().unwrap() && !foreign.nodelay().unwrap());
            assert_eq!(set(), NoDelay { sockets: 1, lacking: 0 });
        }

        #[test]
        fn one_socket_is_duplicated_at_a_time() {
            let _alone = lock(&ALONE);
            if !can_set_nodelay() {
                return;
            }
            let server = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = server.local_addr().unwrap();
            let sockets: Vec<_> = (0..20).map(|_| TcpStream::connect(address).unwrap()).collect();
            let link = |fd: i32| fs::read_link(format!("/proc/self/fd/{fd}")).unwrap();
            let ours: Vec<_> = sockets.iter().map(|socket| link(socket.as_raw_fd())).collect();
            // How many files of this process are these sockets.
            let open = || {
                let files = fs::read_dir("/proc/self/fd").unwrap();
                let links = files.filter_map(|file| fs::read_link(file.unwrap().path()).ok());
                links.filter(|link| ours.contains(link)).count()
            };
            let (mut seen, mut most) = (0, 0);
            for_each_socket(
                |peer| *peer == address,
                |_| {
                    (seen, most) = (seen + 1, most.max(open()));
                    Ok(())
                },
            )
            .unwrap();
            assert_eq!((seen, most, open()), (20, 21, 20));
        }
    }
}
