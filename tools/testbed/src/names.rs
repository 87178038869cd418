//! Names with several addresses, for code that asks a function what a name means.

use std::{
    net::{SocketAddr, TcpListener},
    sync::Mutex,
};

static NAMES: Mutex<Vec<Vec<SocketAddr>>> = Mutex::new(Vec::new());

/// A host and a port, which the system resolves to the first of these addresses, and [`addresses_of`] to all of
/// them. The first one is on 127.0.0.1.
///
/// # Panics
/// If it is not.
pub fn name_of(addresses: &[SocketAddr]) -> String {
    assert!(addresses[0].ip().is_loopback(), "{addresses:?}");
    NAMES.lock().expect("nobody panics here").push(addresses.to_vec());
    format!("localhost:{}", addresses[0].port())
}

/// What [`name_of`] has made up. `None`: nothing.
pub fn addresses_of(host: &str, port: u16) -> Option<Vec<SocketAddr>> {
    let names = NAMES.lock().ok()?;
    let is_meant = |addresses: &&Vec<SocketAddr>| host == "localhost" && addresses[0].port() == port;
    names.iter().find(is_meant).cloned()
}

/// A server that hangs: the kernel takes connections for it, and nobody answers.
///
/// # Panics
/// If no port is free.
pub fn hung() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a port");
    (listener, address)
}
