//! What holds for every kind of server.

use std::{
    future::Future,
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use testbed::Server;

/// Long enough for a slow machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// Takes a server through stop, kill, pause and restart. `remembers` fails if the data are not there; it is
/// called when the server runs.
pub(crate) async fn whole_life<F: Future<Output = ()>>(server: &Server, remembers: impl Fn() -> F) {
    let folder = server.folder().to_owned();
    let addr = server.addr();
    remembers().await;
    assert!(server.restart().await.is_err(), "it runs, so it can not be started");

    let first = server.pid().expect("it runs");
    server.stop().await.expect("stops");
    assert!(server.pid().is_none());
    assert!(!exists(first), "stopped");
    assert!(TcpStream::connect(addr).is_err(), "stopped, so nobody listens");
    assert!(server.pause().is_err(), "nothing to pause");
    server.stop().await.expect("stopping twice does no harm");
    server.restart().await.expect("restarts");
    assert_ne!(server.pid(), Some(first));
    assert_eq!(server.addr(), addr);
    remembers().await;

    let second = server.pid().expect("it runs");
    server.kill().expect("kills");
    assert!(!exists(second), "killed");
    assert!(TcpStream::connect(addr).is_err(), "killed, so nobody listens");
    server.kill().expect("killing twice does no harm");
    restart_where_a_stranger_listens(server).await;
    remembers().await;

    server.pause().expect("pauses");
    assert!(TcpStream::connect(addr).is_ok(), "the kernel takes connections for a paused server");
    server.resume().expect("resumes");
    remembers().await;

    // A paused server can be stopped and killed too.
    server.pause().expect("pauses");
    server.stop().await.expect("stops a paused server");
    server.restart().await.expect("restarts");
    server.pause().expect("pauses");
    server.kill().expect("kills a paused server");
    server.restart().await.expect("restarts");
    remembers().await;
    assert!(folder.is_dir());
}

/// A restart does not take somebody else on its port for the server, and waits until they have gone.
async fn restart_where_a_stranger_listens(server: &Server) {
    let stranger = TcpListener::bind(server.addr()).expect("the port is free");
    let leaves = thread::spawn(move || {
        thread::sleep(Duration::from_millis(700));
        drop(stranger);
    });
    server.restart().await.expect("restarts when the stranger has gone");
    leaves.join().expect("the stranger has gone");
}

/// Waits until something holds, and fails if that takes too long.
pub(crate) async fn eventually(what: &str, holds: impl AsyncFn() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !holds().await {
        assert!(Instant::now() < deadline, "not within {TIMEOUT:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The process and the folder of a server, to see that they go.
pub(crate) fn traces(server: &Server) -> (u32, PathBuf) {
    (server.pid().expect("it runs"), server.folder().to_owned())
}

/// Fails if anything is left of a server that has been dropped.
pub(crate) fn assert_gone(pid: u32, folder: &Path) {
    let deadline = Instant::now() + TIMEOUT;
    while exists(pid) || folder.exists() {
        assert!(Instant::now() < deadline, "left behind: {pid} or {}", folder.display());
        thread::sleep(Duration::from_millis(10));
    }
}

fn exists(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}
