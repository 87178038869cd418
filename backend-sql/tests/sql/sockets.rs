//! Unix sockets.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use testbed::{MariaDb, Postgres, if_installed};

use crate::servers::{Kind, client, options};

/// A folder for a socket, which the user of any server may write to. Its path is short, as that of a socket
/// must be.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir_in("/tmp").expect("a folder");
    set_permissions(folder.path(), Permissions::from_mode(0o777)).expect("our folder");
    folder
}

/// A client by the socket and one by the network see the same locks, and wake each other.
async fn same_locks(kind: Kind, socket: &str, network: &str) {
    let (one, two) = (client(kind, socket).await, client(kind, network).await);
    let guard = one.lock("a").await.expect("a free lock");
    assert!(two.lock("a").try_now().await.expect("an answer").is_none(), "both hold");
    let waits = tokio::spawn(async move { two.lock("a").wait(Duration::from_secs(20)).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    guard.release().await.expect("held");
    let next = waits.await.expect("no panic").expect("a free lock");
    assert!(one.lock("a").try_now().await.expect("an answer").is_none(), "both hold");
    next.release().await.expect("held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres() {
    let folder = folder();
    let path = folder.path().display();
    let options = options().setting("unix_socket_directories", path.to_string());
    let Some(server) = if_installed(Postgres::start_with(&options).await) else { return };
    let socket = format!("postgres://postgres@/postgres?socket={path}/.s.PGSQL.{}", server.addr().port());
    same_locks(Kind::Postgres, &socket, &server.url()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb() {
    let folder = folder();
    let path = folder.path().join("s").display().to_string();
    let Some(server) = if_installed(MariaDb::start_with(&options().setting("socket", &path)).await) else {
        return;
    };
    same_locks(Kind::MariaDb, &format!("mysql://root@/lockwell?socket={path}"), &server.url()).await;
}
