//! What systemd is told about a unit with `Type=notify`, as by its `sd_notify`.

use std::ffi::OsStr;
use std::io;
use std::os::unix::net::UnixDatagram as Socket;
use std::time::Duration;

use tokio::net::UnixDatagram;
use tokio::time::timeout;

/// Where systemd listens: a path, or `@` and a name that has no file.
const ADDRESS: &str = "NOTIFY_SOCKET";

/// How long to try: systemd may have more to read than it takes.
const LONGEST: Duration = Duration::from_secs(1);

/// Tells systemd something, such as `READY=1`, one in each line, if it listens. What cannot be told is only
/// logged.
pub(crate) async fn tell(words: &str) {
    let Some(address) = std::env::var_os(ADDRESS) else { return };
    let told = timeout(LONGEST, send(&address, words)).await;
    if let Err(error) = told.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
        tracing::warn!(%error, ?words, "systemd was not told");
    }
}

async fn send(address: &OsStr, words: &str) -> io::Result<()> {
    let socket = Socket::unbound()?;
    connect(&socket, address)?;
    socket.set_nonblocking(true)?;
    UnixDatagram::from_std(socket)?.send(words.as_bytes()).await.map(drop)
}

#[cfg(target_os = "linux")]
fn connect(socket: &Socket, address: &OsStr) -> io::Result<()> {
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::net::SocketAddr;

    match address.as_bytes().strip_prefix(b"@") {
        Some(name) => socket.connect_addr(&SocketAddr::from_abstract_name(name)?),
        None => socket.connect(address),
    }
}

#[cfg(not(target_os = "linux"))]
fn connect(socket: &Socket, address: &OsStr) -> io::Result<()> {
    socket.connect(address)
}
