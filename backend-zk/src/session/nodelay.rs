//! Sets `TCP_NODELAY` on the connections of sessions, on Linux.
//!
//! An acquire sends two requests together: the creation of its node, and the list of the queue. The client
//! crate writes each of them separately and does not set `TCP_NODELAY`. So the kernel can hold the list back
//! until the server has acknowledged the creation, which it does with its answer (Nagle's algorithm, RFC
//! 896), and the acquire takes two round trips instead of one. The crate does not hand out its sockets. So
//! this module finds them among the open files of this process by their peers, the servers. Another client of
//! the same servers in the same process gets the option, too. With docs/zookeeper-client-nodelay.patch the
//! crate would set the option itself.
//!
//! The option changes the speed only. Nothing else changes where it cannot be set: on other systems, before
//! Linux 5.6, and where system calls are filtered, as with the default profile of Docker.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Weak;
use std::{fs, io};

use rustix::fs::{FileType, fstat};
use rustix::io::Errno;
use rustix::net::getpeername;
use rustix::net::sockopt::{set_tcp_nodelay, tcp_nodelay};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use zookeeper_client::{SessionState, StateWatcher};

use crate::session::Session;
use crate::session::connect::addresses;

/// Sets the option on each connection that the session gets.
pub(crate) async fn set_on_connections(session: Weak<Session>, mut states: StateWatcher) {
    let mut state = states.state();
    loop {
        if state.is_terminated() {
            return;
        }
        if state == SessionState::SyncConnected {
            let Some(options) = session.upgrade().map(|session| session.options.clone()) else { return };
            let servers = addresses(&options.hosts).await;
            match tokio::task::spawn_blocking(move || set_towards(&servers)).await {
                Ok(Ok(sockets)) => tracing::trace!(sockets, "sockets that got TCP_NODELAY"),
                Ok(Err(error)) => tracing::debug!(%error, "TCP_NODELAY cannot be set"),
                Err(_) => return,
            }
        }
        state = states.changed().await;
    }
}

/// Sets the option on the sockets of this process that are connected to one of these addresses and lack it.
/// Returns their number.
fn set_towards(servers: &[SocketAddr]) -> io::Result<usize> {
    let mut changed = 0;
    for_each_socket(servers, |socket| {
        if !tcp_nodelay(socket)? {
            set_tcp_nodelay(socket, true)?;
            changed += 1;
        }
        Ok(())
    })?;
    Ok(changed)
}

/// Calls `work` with a duplicate of each socket of this process that is connected to one of these addresses.
/// There is one duplicate at a time: a process with many connections may have few files left.
fn for_each_socket(
    servers: &[SocketAddr],
    mut work: impl FnMut(&OwnedFd) -> io::Result<()>,
) -> io::Result<()> {
    if may_be_filtered() {
        let text = "the system calls of this process may be filtered";
        return Err(io::Error::new(io::ErrorKind::Unsupported, text));
    }
    let process = pidfd_open(getpid(), PidfdFlags::empty())?;
    for entry in fs::read_dir("/proc/self/fd")? {
        let entry = entry?;
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let is_socket = fs::read_link(entry.path())
            .is_ok_and(|target| target.to_str().is_some_and(|target| target.starts_with("socket:")));
        if !is_socket {
            continue;
        }
        let socket = match pidfd_getfd(&process, number, PidfdGetfdFlags::empty()) {
            Err(Errno::BADF) => continue,
            answer => answer?,
        };
        // The socket may have been closed meanwhile, and its number used for a file. Closing any descriptor
        // of a file ends all locks of this process on that file (fcntl), such as those of SQLite. So the
        // duplicate stays open.
        if !fstat(&socket).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Socket) {
            std::mem::forget(socket);
            continue;
        }
        let peer = getpeername(&socket).ok().flatten().and_then(|peer| SocketAddr::try_from(peer).ok());
        if peer.is_some_and(|peer| servers.contains(&peer)) {
            work(&socket)?;
        }
    }
    Ok(())
}

/// Whether there is a filter of system calls (seccomp), or that is not known. A filter may kill the process
/// for a call that is not on its list, as in a unit of systemd with `SystemCallFilter=@system-service`. So
/// nothing is tried then.
fn may_be_filtered() -> bool {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    !status.lines().any(|line| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() == "0"))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    use std::sync::Arc;
    use std::time::Duration;

    use lockcore::{Locks, Moment};

    use super::*;
    use crate::ZkLock;

    /// Why it cannot be set here.
    fn hindered() -> bool {
        for_each_socket(&[], |_| Ok(())).inspect_err(|error| eprintln!("ignored: {error}")).is_err()
    }

    #[test]
    fn only_connections_to_the_servers_are_changed() {
        if hindered() {
            return;
        }
        let listen = || TcpListener::bind("127.0.0.1:0").unwrap();
        let (server, other) = (listen(), listen());
        let connect = |to: &TcpListener| TcpStream::connect(to.local_addr().unwrap()).unwrap();
        let (ours, foreign) = (connect(&server), connect(&other));
        let address = [server.local_addr().unwrap()];
        assert_eq!(set_towards(&address).unwrap(), 1);
        assert!(ours.nodelay().unwrap() && !foreign.nodelay().unwrap());
        assert_eq!(set_towards(&address).unwrap(), 0);
    }

    #[test]
    fn one_socket_is_duplicated_at_a_time() {
        if hindered() {
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
        for_each_socket(&[address], |_| {
            (seen, most) = (seen + 1, most.max(open()));
            Ok(())
        })
        .unwrap();
        assert_eq!((seen, most, open()), (20, 21, 20));
    }

    #[tokio::test]
    async fn sessions_get_it() {
        if hindered() || !testbed::is_installed(testbed::ZooKeeper::installed()) {
            return;
        }
        let server = testbed::ZooKeeper::start_with(&testbed::Options::new()).await.unwrap();
        let lock = ZkLock::connect(&server.url().parse().unwrap()).await.unwrap();
        let locks = Locks::new(Arc::new(lock) as Arc<_>).unwrap();
        let _held = locks.lock("held").await.unwrap();
        let end = Moment::now().after(Duration::from_secs(20));
        loop {
            let mut sockets = Vec::new();
            for_each_socket(&[server.addr()], |socket| {
                sockets.push(tcp_nodelay(socket)?);
                Ok(())
            })
            .unwrap();
            // Those that ask for limits only are closed soon.
            if !sockets.is_empty() && sockets.iter().all(|set| *set) {
                return;
            }
            assert!(!end.has_passed(), "one of {} sockets lacks it", sockets.len());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
