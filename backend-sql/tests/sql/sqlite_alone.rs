//! A file of locks has one name, and nothing else in a process opens it.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use lockwell_core::{Error, ErrorKind, Mode, Renewal};
use sqlx::Connection;
use testbed::cannot_run;

use crate::servers::{Kind, admin, backend, claim, client, soon, url};
use crate::sqlite_child::{ask, command};

const TTL: Duration = Duration::from_secs(30);

async fn new_file() -> (String, PathBuf) {
    let url = url(Kind::Sqlite, "alone").await.expect("no server is needed");
    let path = url.strip_prefix("sqlite://").and_then(|rest| rest.split('?').next()).expect("a path");
    (url.clone(), PathBuf::from(path))
}

fn assert_names_cause(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
    assert!(error.to_string().contains("a file of their own"), "{error:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_something_else_has_open_is_refused() {
    let (url, path) = new_file().await;
    drop(client(Kind::Sqlite, &url).await);
    for options in ["", "&create=false"] {
        let other = File::open(&path).expect("a file");
        assert_names_cause(&backend(Kind::Sqlite, &format!("{url}{options}")).await.expect_err("it is open"));
        drop(other);
        backend(Kind::Sqlite, &format!("{url}{options}")).await.expect("nobody else has it open");
    }
}

/// Renews until that fails, and returns why.
async fn failed_renewal(url: &str, harm: impl FnOnce()) -> Error {
    let one = backend(Kind::Sqlite, url).await.expect("a file");
    let held = claim("a", Mode::Exclusive, TTL);
    let grant = one.acquire(&held).await.expect("an answer").expect("a free lock");
    harm();
    let end = Instant::now() + Duration::from_secs(20);
    let error = loop {
        assert!(Instant::now() < end, "it is never noticed");
        match &one.renew(std::slice::from_ref(&grant), soon()).await[..] {
            [Renewal::Renewed(_)] => tokio::time::sleep(Duration::from_millis(20)).await,
            [Renewal::Unknown(error)] => break error.duplicate(),
            other => panic!("{other:?}"),
        }
    };
    // It does not go on later.
    for _ in 0..3 {
        let other = claim("b", Mode::Exclusive, TTL);
        assert_names_cause(&one.acquire(&other).await.expect_err("the file is not used any more"));
    }
    error
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_something_else_opens_later_is_not_used_any_more() {
    let (url, path) = new_file().await;
    let mut other = None;
    assert_names_cause(&failed_renewal(&url, || other = File::open(&path).ok()).await);
    assert!(other.is_some());
}

/// As a hash or a backup does it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_of_the_file_that_were_taken_away_are_missed() {
    let (url, path) = new_file().await;
    assert_names_cause(&failed_renewal(&url, || drop(std::fs::read(&path).expect("a file"))).await);
    // Another client begins anew.
    client(Kind::Sqlite, &url).await.lock("c").await.expect("a free lock").release().await.expect("held");
}

/// Another copy of SQLite has the shared memory open once more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_copy_of_sqlite_is_noticed() {
    let (url, path) = new_file().await;
    let as_sqlite = |end: &str| {
        let flags = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
        let file = PathBuf::from(format!("{}{end}", path.display()));
        OpenOptions::new().read(true).write(true).custom_flags(flags).open(file).expect("a file")
    };
    // With its last connection, SQLite would remove the shared memory.
    let stays = sqlx::SqliteConnection::connect(&format!("sqlite://{}?mode=rwc", path.display())).await;
    let mut stays = stays.expect("a connection");
    sqlx::raw_sql("PRAGMA journal_mode = WAL; SELECT count(*) FROM sqlite_schema")
        .execute(&mut stays)
        .await
        .expect("a file");
    let mut others = Vec::new();
    assert_names_cause(&failed_renewal(&url, || others = vec![as_sqlite(""), as_sqlite("-shm")]).await);
    // A client that opens the file now cannot use it, either.
    assert_names_cause(&backend(Kind::Sqlite, &url).await.expect_err("there are two copies"));
    stays.close().await.expect("closed");
}

/// The application has connections of the same copy of SQLite, to verify locks in its transactions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_of_the_application_are_welcome() {
    let (url, _) = new_file().await;
    let locks = client(Kind::Sqlite, &url).await;
    let end = Instant::now() + Duration::from_secs(1);
    while Instant::now() < end {
        admin(Kind::Sqlite, &url, "SELECT 'x'").await;
        locks.lock("a").await.expect("a free lock").release().await.expect("held");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_with_two_names_is_refused() {
    let (url, path) = new_file().await;
    drop(client(Kind::Sqlite, &url).await);
    let (other_url, other) = new_file().await;
    std::fs::hard_link(&path, &other).expect("both are in one file system");
    for url in [&url, &other_url] {
        let error = backend(Kind::Sqlite, url).await.expect_err("it has two names");
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
        assert!(error.to_string().contains("hard link"), "{error:#}");
    }
    std::fs::remove_file(&other).expect("the link");
    // This is one name, and another that leads to it.
    std::os::unix::fs::symlink(&path, &other).expect("a link");
    let held = client(Kind::Sqlite, &url).await.lock("a").await.expect("a free lock");
    assert_eq!(ask("try", &other_url).await, "held");
    held.release().await.expect("held");
}

/// What a process prints that connects to a file after this command, in a namespace of mounts. `None`: that is
/// not permitted.
async fn connected_after(mount: &str, url: &str, arguments: &[&Path]) -> Option<String> {
    let child = command("connect", url);
    let mut mounted = tokio::process::Command::new("unshare");
    mounted.args(["--mount", "sh", "-c", &format!("{mount} && exec \"$0\" \"$@\"")]);
    mounted.arg(child.get_program()).args(child.get_args());
    for (name, path) in ["A", "B", "C", "D"].iter().zip(arguments) {
        mounted.env(name, path);
    }
    mounted.envs(child.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = mounted.stdin(Stdio::null()).output().await.expect("util-linux");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let answer = text.lines().find_map(|line| line.split_once("=> ")).map(|(_, answer)| answer.to_owned());
    if answer.is_none() {
        cannot_run("", "mounts are not permitted here");
    }
    answer
}

/// As `docker run -v ./locks.db:/data/locks.db` does it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_mounted_by_itself_is_refused() {
    let (url, path) = new_file().await;
    let held = client(Kind::Sqlite, &url).await.lock("a").await.expect("a free lock");
    let (other_url, other) = new_file().await;
    File::create(&other).expect("a file");
    let bind = "mount --bind \"$A\" \"$B\"";
    let Some(answer) = connected_after(bind, &other_url, &[&path, &other]).await else { return };
    assert!(answer.contains("Misconfigured") && answer.contains("mounted by itself"), "{answer}");
    let folders = [path.parent().expect("a folder"), other.parent().expect("a folder")];
    let answer = connected_after(bind, &other_url, &folders).await.expect("it is permitted");
    assert!(answer.starts_with("connected") && !answer.contains("reach"), "{answer}");
    held.release().await.expect("held");
}

/// The layers of a container are its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_asks_is_told_of_the_layers_of_a_container() {
    let (url, path) = new_file().await;
    let folder = tempfile::tempdir().expect("a folder");
    let [lower, upper, work] = ["lower", "upper", "work"].map(|name| folder.path().join(name));
    for folder in [&lower, &upper, &work] {
        std::fs::create_dir(folder).expect("a folder");
    }
    let overlay = "mount -t overlay overlay -o \"lowerdir=$A,upperdir=$B,workdir=$C\" \"$D\"";
    let folders = [&*lower, &upper, &work, path.parent().expect("a folder")];
    let Some(answer) = connected_after(overlay, &url, &folders).await else { return };
    assert!(answer.starts_with("connected [\"reach\""), "{answer}");
}
