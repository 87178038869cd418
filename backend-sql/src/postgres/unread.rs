//! Logs in once more, through a relay in this process that reads the SQLSTATE of the answer.

use std::io::{self, Error};
use std::net::Ipv4Addr;

use sqlx_core::connection::ConnectOptions;
use sqlx_postgres::PgConnectOptions;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy};
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::net::{TcpListener, TcpStream};

use crate::dialect::answers::postgres::SOME_REFUSAL;
use crate::sql::unread::{Reread, Unread};

/// Protocol 3.0, and a user and a database that need not exist.
const STARTUP: &[u8] = b"\0\0\0\x29\0\x03\0\0user\0lockwell\0database\0lockwell\0\0";

/// More than any message before the end of a login.
const LONGEST: u32 = 65_536;

impl Reread for PgConnectOptions {
    async fn reread(&self) -> Option<Unread> {
        let code = match socket(self) {
            // The server may know us by our user, and others of this host can use the relay as well.
            Some(path) => general(open(&path).await.ok()?).await,
            None => match relayed(self).await.ok()? {
                Some(code) => Ok(code),
                // Within TLS.
                None => general(TcpStream::connect((self.get_host(), self.get_port())).await.ok()?).await,
            },
        };
        Some(Unread { code: code.ok()?, number: 0 })
    }
}

/// The Unix socket of these options.
fn socket(options: &PgConnectOptions) -> Option<String> {
    let host = options.get_host();
    let folder = options.get_socket().map(|folder| folder.display().to_string());
    let folder = folder.or_else(|| host.starts_with('/').then(|| host.to_owned()))?;
    Some(format!("{folder}/.s.PGSQL.{}", options.get_port()))
}

#[cfg(unix)]
async fn open(path: &str) -> io::Result<UnixStream> {
    UnixStream::connect(path).await
}

#[cfg(not(unix))]
async fn open(_: &str) -> io::Result<TcpStream> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The SQLSTATE of the answer to this login. `None`: the server answers within TLS.
async fn relayed(options: &PgConnectOptions) -> io::Result<Option<String>> {
    let relay = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let through = options.clone().host("127.0.0.1").port(relay.local_addr()?.port());
    let answer = async {
        let (mut asks, mut hears) = relay.accept().await?.0.into_split();
        let server = TcpStream::connect((options.get_host(), options.get_port())).await?;
        let (mut says, mut takes) = server.into_split();
        let hearing = async {
            let mut kind = says.read_u8().await?;
            // The answers to the question for TLS. The first message is of neither kind.
            if kind == b'S' {
                return Ok(None);
            }
            if kind == b'N' {
                hears.write_u8(kind).await?;
                kind = says.read_u8().await?;
            }
            loop {
                let message = body(&mut says).await?;
                if kind == b'E' {
                    return code(&message).map(Some);
                }
                hears.write_u8(kind).await?;
                hears.write_u32(length(&message)).await?;
                hears.write_all(&message).await?;
                kind = says.read_u8().await?;
            }
        };
        tokio::select! {
            heard = hearing => heard,
            Err(error) = copy(&mut asks, &mut takes) => Err(error),
        }
    };
    tokio::select! {
        answer = answer => answer,
        _ = through.connect() => Err(Error::other("it is let in now, or there is no way to the relay")),
    }
}

/// The SQLSTATE by which a server refuses everybody, since it starts, stops or is full. Otherwise it has
/// refused this login, and it is not known why.
async fn general<S: AsyncRead + AsyncWrite + Unpin>(mut server: S) -> io::Result<String> {
    server.write_all(STARTUP).await?;
    if server.read_u8().await? == b'E' {
        let code = code(&body(&mut server).await?)?;
        if code.starts_with("57") || code.starts_with("53") {
            return Ok(code);
        }
    }
    Ok(SOME_REFUSAL.to_owned())
}

fn length(message: &[u8]) -> u32 {
    u32::try_from(message.len()).unwrap_or(LONGEST) + 4
}

async fn body(server: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let length = server.read_u32().await?;
    let length = length.checked_sub(4).filter(|length| *length < LONGEST);
    let mut body = vec![0; length.ok_or_else(|| Error::other("no message"))? as usize];
    server.read_exact(&mut body).await?;
    Ok(body)
}

/// The SQLSTATE of an error. Each of its fields is a byte for its kind, and a text that ends with a zero.
fn code(error: &[u8]) -> io::Result<String> {
    let code = error.split(|byte| *byte == 0).find_map(|field| field.strip_prefix(b"C"));
    let code = code.and_then(|code| std::str::from_utf8(code).ok());
    code.map(str::to_owned).ok_or_else(|| Error::other("an error without a code"))
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    /// What a server says to somebody whom it does not know shows whether it refuses everybody.
    #[tokio::test]
    async fn an_answer_to_everybody_is_told_from_one_to_this_login() {
        let error = |code: &str| {
            let fields = [b"SFATAL\0C", code.as_bytes(), b"\0Mrefus\xe9\0\0"].concat();
            [b"E", &length(&fields).to_be_bytes()[..], &fields].concat()
        };
        let asks = b"R\0\0\0\x08\0\0\0\x03".to_vec();
        for (answer, code) in [
            (error("57P03"), "57P03"),
            (error("53300"), "53300"),
            (error("28000"), SOME_REFUSAL),
            (error("3D000"), SOME_REFUSAL),
            (asks, SOME_REFUSAL),
        ] {
            let (client, mut server) = duplex(1024);
            server.write_all(&answer).await.expect("a client");
            assert_eq!(general(client).await.expect("an answer"), code);
            let mut asked = vec![0; STARTUP.len()];
            server.read_exact(&mut asked).await.expect("a question");
            assert_eq!(usize::from(asked[3]), STARTUP.len());
        }
        let (client, _) = duplex(1024);
        assert!(general(client).await.is_err(), "no answer is no refusal");
    }
}
