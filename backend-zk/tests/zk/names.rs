//! A server whose name gets another address.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::servers::{client, hold, options, single};

const TTL: Duration = Duration::from_secs(5);

/// Looks names up as a file says. `false`: it cannot be done here.
fn compile(library: &Path) -> bool {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/zk/other/resolve.c");
    let compiler =
        std::process::Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(library).arg(&source).status();
    let Ok(status) = compiler.as_ref().map(|status| status.success() && cfg!(target_os = "linux")) else {
        testbed::lacks("there is no C compiler");
        return false;
    };
    assert!(status, "{} does not compile", source.display());
    true
}

/// Passes connections on, until it is dropped.
async fn forward(listener: TcpListener, to: SocketAddr) {
    let mut connections = JoinSet::new();
    while let Ok((mut stream, _)) = listener.accept().await {
        connections.spawn(async move {
            let mut server = TcpStream::connect(to).await?;
            tokio::io::copy_bidirectional(&mut stream, &mut server).await
        });
    }
}

/// The old address goes, and the name has a new one: the session moves there, and the lock is kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_gets_another_address() {
    let folder = tempfile::tempdir().expect("a folder");
    let (library, name) = (folder.path().join("resolve.so"), folder.path().join("name"));
    if !compile(&library) {
        return;
    }
    let Some(server) = single(&options()).await else { return };
    let old = TcpListener::bind("127.0.0.2:0").await.expect("a port");
    let port = old.local_addr().expect("an address").port();
    let new = TcpListener::bind(("127.0.0.3", port)).await.expect("the same port");
    let old = tokio::spawn(forward(old, server.addr()));
    let _new = tokio::spawn(forward(new, server.addr()));
    std::fs::write(&name, "127.0.0.2").expect("written");
    let mut child = tokio::process::Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "names::holder_by_name", "--ignored", "--nocapture"])
        .env("LD_PRELOAD", &library)
        .env("LOCKWELL_NAME_IS", &name)
        .env("LOCKWELL_TEST_URL", format!("zk://moves.test:{port}?session=5s"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("it starts");
    let mut said = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut says = async |word: &str| {
        while let Some(line) = said.next_line().await.expect("a line") {
            if line.ends_with(word) {
                return;
            }
        }
        panic!("it did not say {word}");
    };
    says("held").await;
    let other = client(&server.url()).await;
    let next = folder.path().join("next");
    std::fs::write(&next, "127.0.0.3").expect("written");
    std::fs::rename(&next, &name).expect("renamed");
    old.abort();
    tokio::time::sleep(TTL * 3).await;
    assert!(other.lock("named").try_now().await.expect("an answer").is_none(), "the lock was lost");
    child.stdin.take().expect("a pipe").write_all(b"\n").await.expect("it listens");
    says("released").await;
    hold(&other, "named").await.release().await.expect("held");
}

/// What the other process does: it holds a lock until it is told to give it back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "is run by another test"]
async fn holder_by_name() {
    let locks = client(&std::env::var("LOCKWELL_TEST_URL").expect("an address")).await;
    let guard = locks.lock("named").ttl(TTL).await.expect("a free lock");
    println!("\nheld");
    let mut line = String::new();
    BufReader::new(tokio::io::stdin()).read_line(&mut line).await.expect("a word");
    assert!(guard.is_held(), "{guard:?}");
    guard.release().await.expect("held");
    println!("\nreleased");
}
