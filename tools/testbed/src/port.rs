//! Chooses a port for a server.

use std::{
    collections::HashMap,
    env,
    fs::{self, File, TryLockError},
    hash::{BuildHasher, RandomState},
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::{LazyLock, Mutex, PoisonError},
};

/// Two servers never get the same port, even if the first is down at the moment. Each port of this process
/// has a file that is locked as long as this process lives, since test programs run side by side.
static GIVEN: LazyLock<Mutex<HashMap<u16, Option<File>>>> = LazyLock::new(Mutex::default);

const LOWEST: u16 = 10_000;

/// A port on which nobody listens now. Somebody else may take it before the server does, so the caller checks
/// who answers, and comes back for another.
///
/// It lies below the range from which the kernel hands out source ports. A port from inside that range can be
/// taken by any outgoing connection while the server is down, and the server could not be started again on
/// it.
pub(crate) fn free() -> io::Result<SocketAddr> {
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    let highest = lowest_source_port();
    if highest > LOWEST + 1000 {
        for attempt in 0..200_u32 {
            let random = RandomState::new().hash_one(attempt) % u64::from(highest - LOWEST);
            let port = LOWEST + u16::try_from(random).unwrap_or(0);
            if given.contains_key(&port) || TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_err() {
                continue;
            }
            if let Ok(file) = claim(port) {
                given.insert(port, file);
                return Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
            }
        }
    }
    // The machine has an unusual range: let the kernel choose.
    loop {
        let addr = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        if given.insert(addr.port(), None).is_none() {
            return Ok(addr);
        }
    }
}

/// Claims a port among all processes; an error if another one has it. Where no such file can be made, nobody
/// is asked.
fn claim(port: u16) -> Result<Option<File>, TryLockError> {
    let folder = env::temp_dir().join("lockwell-ports");
    let open = || fs::create_dir_all(&folder).and_then(|()| File::create(folder.join(port.to_string())));
    let Ok(file) = open() else { return Ok(None) };
    file.try_lock().map(|()| Some(file))
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
        let ports: std::collections::HashSet<_> = (0..50).map(|_| free().expect("a port").port()).collect();
        assert_eq!(ports.len(), 50);
        let port = *ports.iter().next().expect("some");
        // Another opening of the file stands for another process.
        assert!(claim(port).is_err(), "it is locked");
    }
}
