//! Asks servers in plain text over a socket.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

/// One that takes the connection before it can answer may never answer it.
pub(crate) const SHORT: Duration = Duration::from_secs(1);

/// Generous: it only ends the wait for a server that is paused.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// Sends a question and reads until the server closes the connection. `timeout` is for each piece of the
/// answer.
pub(crate) fn exchange(addr: SocketAddr, question: &[u8], timeout: Duration) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&addr, timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.write_all(question)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
