//! The few bytes of the protocol that end somebody else's session.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const CLOSE_SESSION: i32 = -11;

/// Ends a session, as another client can that has its password: the server thinks that its owner said
/// farewell.
pub(crate) async fn end_session(server: SocketAddr, session: i64) {
    let work = tokio::task::spawn_blocking(move || {
        let first = try_end_session(server, session);
        assert!(
            !matches!(first, Ok(Was::Over)),
            "the server does not take us for the owner of session {session:#x}"
        );
        // The owner, whose connection the server closes for ours, comes back at once and can be quicker. Then
        // nobody knows what became of the request.
        let mut known = first.is_ok();
        while !known {
            known = try_end_session(server, session).is_ok();
        }
    });
    work.await.expect("no panic");
}

/// What the session was before.
enum Was {
    Alive,
    /// Or the password is wrong.
    Over,
}

/// It fails if the server closes the connection before the session is over.
fn try_end_session(server: SocketAddr, session: i64) -> io::Result<Was> {
    let mut stream = TcpStream::connect(server)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut connect = Vec::new();
    // Version, last zxid seen, timeout in milliseconds, session, password, read only.
    connect.extend(0i32.to_be_bytes());
    connect.extend(0i64.to_be_bytes());
    connect.extend(30_000i32.to_be_bytes());
    connect.extend(session.to_be_bytes());
    connect.extend(16i32.to_be_bytes());
    connect.extend(password(session));
    connect.push(0);
    send(&mut stream, &connect)?;
    send(&mut stream, &[1i32.to_be_bytes(), CLOSE_SESSION.to_be_bytes()].concat())?;
    let answer = receive(&mut stream)?;
    // The timeout that the server grants: none if the session is over.
    if answer[4..8] == [0; 4] {
        return Ok(Was::Over);
    }
    receive(&mut stream).map(|_| Was::Alive)
}

fn send(stream: &mut TcpStream, body: &[u8]) -> io::Result<()> {
    let length = i32::try_from(body.len()).expect("short").to_be_bytes();
    stream.write_all(&[&length[..], body].concat())
}

fn receive(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut body = vec![0; usize::try_from(i32::from_be_bytes(length)).expect("a length")];
    stream.read_exact(&mut body)?;
    Ok(body)
}

/// The password that the server gives a session: `java.util.Random`, seeded with the session's id and a
/// constant.
fn password(session: i64) -> [u8; 16] {
    const MASK: u64 = (1 << 48) - 1;
    let mut seed = (u64::from_ne_bytes((session ^ 0xB341_5C00).to_ne_bytes()) ^ 0x5_DEEC_E66D) & MASK;
    let mut password = [0; 16];
    for part in password.chunks_exact_mut(4) {
        seed = (seed.wrapping_mul(0x5_DEEC_E66D) + 0xB) & MASK;
        part.copy_from_slice(&u32::try_from(seed >> 16).expect("32 bits").to_le_bytes());
    }
    password
}
