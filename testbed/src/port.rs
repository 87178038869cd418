//! Chooses a port for a server.

use std::{
    collections::HashSet,
    fs,
    hash::{BuildHasher, RandomState},
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::{LazyLock, Mutex, PoisonError},
};

/// Two servers of this process never get the same port, even if the first is down at the moment.
static GIVEN: LazyLock<Mutex<HashSet<u16>>> = LazyLock::new(Mutex::default);

const LOWEST: u16 = 10_000;

/// A port on which nobody listens now. Somebody else may take it before the server does, so the caller checks
/// who answers, and comes back for another.
///
/// It lies below the range from which the kernel hands out source ports. A port from inside that range can be
/// taken by any outgoing connection while the server is down, and the server could not be started again on it.
pub(crate) fn free() -> io::Result<SocketAddr> {
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    let highest = lowest_source_port();
    if highest > LOWEST + 1000 {
        for attempt in 0..200_u32 {
            let random = RandomState::new().hash_one(attempt) % u64::from(highest - LOWEST);
            let port = LOWEST + u16::try_from(random).unwrap_or(0);
            if !given.contains(&port) && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
                given.insert(port);
                return Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
            }
        }
    }
    // The machine has an unusual range: let the kernel choose.
    loop {
        let addr = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        if given.insert(addr.port()) {
            return Ok(addr);
        }
    }
}

fn lowest_source_port() -> u16 {
    fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")
        .ok()
        .and_then(|range| range.split_whitespace().next()?.parse().ok())
        .unwrap_or(32_768)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_free_and_differ() {
        let ports: HashSet<_> = (0..50).map(|_| free().expect("a port").port()).collect();
        assert_eq!(ports.len(), 50);
    }
}
