//! Sets `TCP_NODELAY` on the connections of sessions, on Linux.
//!
//! An acquire sends two requests together: the creation of its node, and the list of the queue. The client crate writes
//! each of them separately and leaves `TCP_NODELAY` unset, so the kernel can hold the list back until the server has
//! acknowledged the creation, which it does with its answer (Nagle's algorithm, RFC 896). The acquire then takes two
//! round trips instead of one. The crate does not hand out its sockets either; docs/zookeeper-client-nodelay.patch sets the
//! option where it belongs, in the crate. Until then, the sockets are found among the open files of this process by
//! their peers, the servers. Another client of the same servers in the same process gets the option, too.
//!
//! The option changes the speed only. Where it cannot be set, nothing else changes: on other systems, before Linux 5.6,
//! and where `pidfd_getfd` is forbidden, as in containers with the usual seccomp profile.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Weak;
use std::{fs, io};

use rustix::net::sockopt::{set_tcp_nodelay, tcp_nodelay};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use zookeeper_client::{SessionState, StateWatcher};

use crate::connect::addresses;
use crate::session::Session;

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
                Ok(Ok(sockets)) => tracing::trace!(sockets, "TCP_NODELAY set"),
                Ok(Err(error)) => tracing::debug!(%error, "TCP_NODELAY cannot be set"),
                Err(_) => return,
            }
        }
        state = states.changed().await;
    }
}

/// Sets the option on the sockets of this process that are connected to one of these addresses and lack it. Returns
/// their number.
fn set_towards(servers: &[SocketAddr]) -> io::Result<usize> {
    let process = pidfd_open(getpid(), PidfdFlags::empty())?;
    let mut changed = 0;
    for entry in fs::read_dir("/proc/self/fd")? {
        let entry = entry?;
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let is_socket = fs::read_link(entry.path())
            .is_ok_and(|target| target.to_str().is_some_and(|target| target.starts_with("socket:")));
        // A file can be closed at any time, and its number used again. So whatever the number stands for now is
        // duplicated first, and looked at through the duplicate.
        if is_socket && let Ok(socket) = pidfd_getfd(&process, number, PidfdGetfdFlags::empty()) {
            changed += usize::from(is_towards(&socket, servers) && set(&socket));
        }
    }
    Ok(changed)
}

fn is_towards(socket: &OwnedFd, servers: &[SocketAddr]) -> bool {
    let peer = rustix::net::getpeername(socket).ok().flatten();
    peer.and_then(|peer| SocketAddr::try_from(peer).ok()).is_some_and(|peer| servers.contains(&peer))
}

fn set(socket: &OwnedFd) -> bool {
    tcp_nodelay(socket) == Ok(false) && set_tcp_nodelay(socket, true).is_ok()
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn only_connections_to_the_servers_are_changed() {
        let listen = || TcpListener::bind("127.0.0.1:0").unwrap();
        let (server, other) = (listen(), listen());
        let connect = |to: &TcpListener| TcpStream::connect(to.local_addr().unwrap()).unwrap();
        let (ours, foreign) = (connect(&server), connect(&other));
        match set_towards(&[server.local_addr().unwrap()]) {
            Ok(changed) => assert_eq!(changed, 1),
            Err(error) => {
                eprintln!("ignored: {error}");
                return;
            }
        }
        assert!(ours.nodelay().unwrap() && !foreign.nodelay().unwrap());
        assert_eq!(set_towards(&[server.local_addr().unwrap()]).unwrap(), 0);
    }
}
