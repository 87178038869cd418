//! Servers whose answers to a login are not UTF-8, as those of a locale with Latin-1. The servers here speak
//! the few bytes of a login that is refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lockwell_core::{Error, ErrorKind, Result};
use lockwell_sql::{MySqlLock, PostgresLock};
use testbed::{MariaDb, if_installed};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener};

use crate::servers::options;

const PATIENCE: Duration = Duration::from_secs(30);

/// A server that answers each client in this way. Returns its port, and how many clients it had.
async fn server<A>(answer: impl Fn(TcpStream) -> A + Send + 'static) -> (u16, Arc<AtomicUsize>)
where
    A: Future<Output = std::io::Result<()>> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("a port").port();
    let clients = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&clients);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(answer(stream));
        }
    });
    (port, clients)
}

fn error(code: &str) -> Vec<u8> {
    let fields = [b"SFATAL\0VFATAL\0C", code.as_bytes(), b"\0Mrefus\xe9 \xe0 l'instant\0\0"].concat();
    let length = u32::try_from(fields.len() + 4).expect("few");
    [b"E", &length.to_be_bytes()[..], &fields].concat()
}

async fn message(stream: &mut (impl AsyncRead + Unpin)) -> std::io::Result<u32> {
    let length = stream.read_u32().await?;
    stream.read_exact(&mut vec![0; length as usize - 4]).await?;
    Ok(length)
}

/// The first message of a client, without TLS.
async fn startup(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> std::io::Result<()> {
    // The question for TLS.
    if message(stream).await? == 8 {
        stream.write_all(b"N").await?;
        message(stream).await?;
    }
    Ok(())
}

/// PostgreSQL without TLS. It may ask for a password first.
async fn postgres(code: &'static str, asks: bool) -> (u16, Arc<AtomicUsize>) {
    server(move |mut stream| async move {
        startup(&mut stream).await?;
        if asks {
            stream.write_all(b"R\0\0\0\x08\0\0\0\x03").await?;
            assert_eq!(stream.read_u8().await?, b'p');
            message(&mut stream).await?;
        }
        stream.write_all(&error(code)).await
    })
    .await
}

async fn refusal<L>(login: impl Future<Output = Result<L>>) -> Error {
    let login = tokio::time::timeout(PATIENCE, Box::pin(login)).await;
    login.expect("it ends").err().expect("a refusal")
}

async fn refusal_of_postgres(port: u16, timeout: &str) -> Error {
    let url =
        format!("postgres://ann:canary@127.0.0.1:{port}/app?timeout={timeout}").parse().expect("an address");
    let error = refusal(PostgresLock::connect(&url)).await;
    assert!(!format!("{error:#}").contains("canary"), "{error:#}");
    error
}

#[tokio::test]
async fn the_code_counts_where_the_text_cannot_be_read() {
    for (code, asks, words) in [
        ("28P01", true, "password is wrong"),
        ("28000", false, "pg_hba.conf"),
        ("28000", true, "no LOGIN"),
        ("55000", true, "ALLOW_CONNECTIONS"),
        ("42501", true, "lacks a right"),
    ] {
        let (port, clients) = postgres(code, asks).await;
        let error = refusal_of_postgres(port, "60s").await;
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Refused, false), "{code}: {error:#}");
        let text = format!("{error:#}");
        assert!(text.contains(words) && text.contains(code) && text.contains("lc_messages"), "{text}");
        assert!(clients.load(Ordering::Relaxed) <= 2, "{code}: {clients:?} logins");
    }
}

/// sqlx has no GSSAPI, as Windows domains use it.
#[tokio::test]
async fn a_login_that_lockwell_does_not_have_is_a_refusal() {
    let (port, _) = server(|mut stream| async move {
        startup(&mut stream).await?;
        stream.write_all(b"R\0\0\0\x08\0\0\0\x07").await
    })
    .await;
    let error = refusal_of_postgres(port, "60s").await;
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:#}");
    assert!(error.to_string().contains("give the user a password"), "{error:#}");
}

/// On a Unix socket only whether the server refuses everybody can be found out.
#[tokio::test]
async fn a_refusal_on_a_unix_socket_ends_the_tries() {
    for (code, kind) in [("28000", ErrorKind::Refused), ("57P03", ErrorKind::Unreachable)] {
        let folder = tempfile::tempdir().expect("a folder");
        let listener = UnixListener::bind(folder.path().join(".s.PGSQL.5432")).expect("a socket");
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                startup(&mut stream).await?;
                stream.write_all(&error(code)).await?;
            }
            Ok::<_, std::io::Error>(())
        });
        let url = format!("postgres://ann@/app?timeout=1s&socket={}", folder.path().display());
        let error = refusal(PostgresLock::connect(&url.parse().expect("an address"))).await;
        assert_eq!(error.kind(), kind, "{error:#}");
    }
}

#[tokio::test]
async fn what_may_pass_is_waited_for() {
    for (code, asks, words) in [("57P03", false, "starts"), ("53300", true, "no connection left")] {
        let (port, clients) = postgres(code, asks).await;
        let error = refusal_of_postgres(port, "1s").await;
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Unreachable, true), "{error:#}");
        assert!(error.to_string().contains(words), "{error:#}");
        assert!(clients.load(Ordering::Relaxed) > 2, "{code}: it was not tried again");
    }
}

#[tokio::test]
async fn the_first_packet_of_mysql_counts() {
    for (number, kind) in
        [(1130_u16, ErrorKind::Refused), (1129, ErrorKind::Refused), (1040, ErrorKind::Unreachable)]
    {
        let (port, clients) = server(move |mut stream: TcpStream| async move {
            let text = [&b"\xff"[..], &number.to_le_bytes(), b"refus\xe9"].concat();
            stream.write_all(&[u8::try_from(text.len()).expect("few"), 0, 0, 0]).await?;
            stream.write_all(&text).await
        })
        .await;
        let url = format!("mysql://ann@127.0.0.1:{port}/app?timeout=1s").parse().expect("an address");
        let error = refusal(MySqlLock::connect(&url)).await;
        assert_eq!(error.kind(), kind, "{error:#}");
        let once = clients.load(Ordering::Relaxed) <= 2;
        assert_eq!(once, kind == ErrorKind::Refused, "{number}: {clients:?} logins");
    }
}

/// In French, MariaDB writes the refusal of a host in Latin-1.
#[tokio::test]
async fn mariadb_refuses_a_host_in_french() {
    let options = options().setting("lc-messages", "fr_FR").setting("character-set-server", "latin1");
    let Some(server) = if_installed(MariaDb::start_with(&options).await) else { return };
    let sql = "CREATE USER ann@'192.0.2.1'; DELETE FROM mysql.global_priv WHERE host <> '192.0.2.1';
               FLUSH PRIVILEGES";
    server.admin_sql(sql).await.expect("an administrator");
    let url = format!("{}?table=logins&timeout=60s", server.url()).parse().expect("an address");
    let error = refusal(MySqlLock::connect(&url)).await;
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:#}");
    assert!(error.to_string().contains("from this host"), "{error:#}");
}
