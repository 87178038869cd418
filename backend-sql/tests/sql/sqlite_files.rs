//! SQLite files that are removed or replaced while they are in use, and addresses that cannot work.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lockwell_core::{Claim, DistributedLock as _, ErrorKind, Locks, Mode, Renewal, Wait};
use lockwell_sql::SqliteLock;

use crate::servers::{Kind, admin, backend, claim, client, count, soon, url};
use crate::sqlite_child::ask;

const TTL: Duration = Duration::from_mins(1);

async fn new_file() -> (String, PathBuf) {
    let url = url(Kind::Sqlite, "files").await.expect("no server is needed");
    let path = url.trim_start_matches("sqlite://").split('?').next().expect("a path").into();
    (url, path)
}

fn beside(path: &Path, end: &str) -> PathBuf {
    format!("{}{end}", path.display()).into()
}

fn remove(path: &Path) {
    for end in ["", "-wal", "-shm"] {
        std::fs::remove_file(beside(path, end)).expect("the file is there");
    }
}

/// Puts an empty database with tables in the place of the file.
async fn replace(path: &Path) {
    let (url, other) = new_file().await;
    drop(client(Kind::Sqlite, &url).await);
    remove(path);
    // Its connections are closed by other threads.
    while beside(&other, "-wal").exists() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    std::fs::rename(other, path).expect("both are in one file system");
}

/// Another process has the lock at once, so the holder must be told at its next renewal.
#[tokio::test]
async fn a_holder_whose_file_is_gone_has_lost() {
    for with_another in [false, true] {
        let (url, path) = new_file().await;
        let one = backend(Kind::Sqlite, &url).await.expect("a file");
        let mut held = Vec::new();
        for mode in [Mode::Exclusive, Mode::Shared] {
            let claim = claim(&format!("{mode:?}"), mode, TTL);
            held.push(one.acquire(&claim).await.expect("an answer").expect("a free lock"));
        }
        assert!(one.renew(&held, soon()).await.iter().all(|one| matches!(one, Renewal::Renewed(_))));
        if with_another {
            replace(&path).await;
            let other = backend(Kind::Sqlite, &url).await.expect("a file");
            let again = claim("Exclusive", Mode::Exclusive, TTL);
            other.acquire(&again).await.expect("an answer").expect("nobody has it in this file");
        } else {
            remove(&path);
        }
        for answer in one.renew(&held, soon()).await {
            assert!(matches!(answer, Renewal::Lost), "{answer:?}");
        }
        // It goes on in the new file, and its tokens rise.
        let claim = claim("Shared", Mode::Exclusive, TTL);
        let grant = one.acquire(&claim).await.expect("an answer").expect("a free lock");
        assert!(grant.token() > held[1].token());
    }
}

/// A connection that is idle while the file is replaced must not grant what it finds in the old one.
#[tokio::test]
async fn nothing_is_granted_in_a_file_that_is_gone() {
    let (url, path) = new_file().await;
    let one = backend(Kind::Sqlite, &url).await.expect("a file");
    for mode in [Mode::Exclusive, Mode::Shared, Mode::Exclusive] {
        replace(&path).await;
        let other = backend(Kind::Sqlite, &url).await.expect("a file");
        let first = claim("a", Mode::Exclusive, TTL);
        other.acquire(&first).await.expect("an answer").expect("a free lock");
        assert!(one.acquire(&claim("a", mode, TTL)).await.expect("an answer").is_none(), "{mode:?}");
        assert_eq!(one.inspect(first.name()).await.expect("an answer").holders.len(), 1);
    }
}

/// Nobody has the lock in the new file, which the waiter may make itself, so it is the waiter's turn at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_goes_on_with_the_new_file() {
    for at_once in [true, false] {
        let (url, path) = new_file().await;
        let (one, two) = (client(Kind::Sqlite, &url).await, client(Kind::Sqlite, &url).await);
        let old = one.lock("a").await.expect("a free lock");
        let waiting = tokio::spawn(two.lock("a").wait(TTL).into_future());
        until_somebody_waits(&one, "in the old file").await;
        let mut old = Some(old);
        if at_once {
            // The old holder's guard still says that it is held.
            let folder = path.parent().expect("a folder");
            std::fs::rename(folder, folder.with_extension("old")).expect("a folder");
            std::fs::create_dir(folder).expect("a folder");
        } else {
            // A log that is left for a moment may be read into the new file, the old holder's row with it.
            remove(&path);
            old = None;
        }
        let guard =
            tokio::time::timeout(TTL, waiting).await.expect("in time").expect("no panic").expect("its turn");
        let three = client(Kind::Sqlite, &url).await;
        assert!(three.lock("a").try_now().await.expect("an answer").is_none());
        drop(old);
        guard.release().await.expect("held");
    }
}

/// A waiter waits for whoever has the lock in the new file, and not for a release in the old one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_waits_for_the_holder_in_the_new_file() {
    let (url, path) = new_file().await;
    drop(client(Kind::Sqlite, &url).await);
    // Neither must make a file of its own while the name is free.
    let existing = format!("{url}&create=false");
    let (one, two) = (client(Kind::Sqlite, &existing).await, client(Kind::Sqlite, &existing).await);
    let old = one.lock("a").await.expect("a free lock");
    let waiting = tokio::spawn(async move {
        let outcome = two.lock("a").wait(TTL).await;
        println!("{outcome:?}");
        outcome
    });
    until_somebody_waits(&one, "in the old file").await;
    let (other_url, other) = new_file().await;
    let new = claim("a", Mode::Exclusive, 10 * TTL);
    let holder = backend(Kind::Sqlite, &other_url).await.expect("a file");
    holder.acquire(&new).await.expect("an answer").expect("a free lock");
    drop(holder);
    let end = Instant::now() + Duration::from_secs(50);
    while beside(&other, "-wal").exists() {
        assert!(Instant::now() < end, "the log stays");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    remove(&path);
    std::fs::rename(other, &path).expect("both are in one file system");
    // Not before: a release would grant the lock in the old file.
    drop((old, one));
    let three = backend(Kind::Sqlite, &url).await.expect("a file");
    until_somebody_waits(&Locks::new(Arc::clone(&three)).expect("a keeper"), "in the new file").await;
    assert!(!waiting.is_finished(), "another has it in the new file");
    three.release(&new).await.expect("an answer");
    let guard =
        tokio::time::timeout(TTL, waiting).await.expect("in time").expect("no panic").expect("its turn");
    guard.release().await.expect("held");
}

async fn until_somebody_waits(locks: &Locks, place: &str) {
    let end = Instant::now() + Duration::from_secs(50);
    while locks.inspect("a").await.expect("an answer").waiters == 0 {
        assert!(Instant::now() < end, "nobody waits {place}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Without the log and the shared memory, other processes would see neither what is in the log nor the locks.
#[tokio::test]
async fn a_log_that_is_removed_is_noticed() {
    let (url, path) = new_file().await;
    let one = backend(Kind::Sqlite, &url).await.expect("a file");
    let held = claim("a", Mode::Exclusive, TTL);
    let grant = one.acquire(&held).await.expect("an answer").expect("a free lock");
    for ends in [vec!["-wal", "-shm"], vec!["-wal"], vec!["-shm"]] {
        for end in &ends {
            std::fs::remove_file(beside(&path, end)).expect("the file is there");
        }
        let answers = one.renew(std::slice::from_ref(&grant), soon()).await;
        assert!(
            matches!(answers[..], [Renewal::Renewed(_)]),
            "the log is carried over: {ends:?} {answers:?}"
        );
        assert!(beside(&path, "-wal").exists() && beside(&path, "-shm").exists());
        assert_eq!(ask("try", &url).await, "held", "{ends:?}");
    }
}

/// SQLite shares the memory among all connections of a process, so an idle one that has the removed file
/// keeps the others from the new one. It is looked at when they fail.
#[tokio::test]
async fn idle_connections_do_not_keep_a_removed_log() {
    let (url, path) = new_file().await;
    let (one, idle) = (
        backend(Kind::Sqlite, &url).await.expect("a file"),
        backend(Kind::Sqlite, &url).await.expect("a file"),
    );
    let held = claim("a", Mode::Exclusive, TTL);
    let grant = one.acquire(&held).await.expect("an answer").expect("a free lock");
    let waits = Claim::new(
        held.name().clone(),
        Mode::Exclusive,
        TTL,
        Wait::Until(lockwell_core::Moment::now().after(TTL / 100)),
        "waits".into(),
    );
    // Whatever waits for notifications stays for a while.
    assert!(idle.acquire(&waits).await.expect("an answer").is_none());
    idle.release(&waits).await.expect("an answer");
    for end in ["-wal", "-shm"] {
        std::fs::remove_file(beside(&path, end)).expect("the file is there");
    }
    let answers = one.renew(std::slice::from_ref(&grant), soon()).await;
    assert!(matches!(answers[..], [Renewal::Renewed(_) | Renewal::Lost]), "{answers:?}");
    assert!(idle.acquire(&held).await.is_ok());
}

#[tokio::test]
async fn words_of_sql_can_be_names_of_tables() {
    for table in ["order", "main.group", "MAIN.select", "Table"] {
        let url = url(Kind::Sqlite, table).await.expect("no server is needed");
        let locks = client(Kind::Sqlite, &url).await;
        let guard = locks.lock("a").await.expect("a free lock");
        assert!(locks.read("a").try_now().await.expect("an answer").is_none());
        guard.release().await.expect("held");
        locks.read("a").await.expect("a free lock").release().await.expect("held");
        assert!(client(Kind::Sqlite, &format!("{url}&create=false")).await.inspect("a").await.is_ok());
    }
    for (table, complaint) in [("temp.locks", "main"), ("app.locks", "main"), ("sqlite_locks", "sqlite_")] {
        let url = url(Kind::Sqlite, table).await.expect("no server is needed");
        let error = backend(Kind::Sqlite, &url).await.expect_err("it cannot work");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error:#}");
        assert!(error.to_string().contains(complaint), "{error:#}");
    }
}

/// Whether the file can be opened is decided at once, whatever becomes of it later.
#[tokio::test]
async fn a_missing_folder_is_an_error_at_once() {
    let (url, path) = new_file().await;
    let folder = path.parent().expect("a folder").to_owned();
    let one = backend(Kind::Sqlite, &format!("{url}&create=false")).await.expect_err("there is no file");
    assert_eq!(one.kind(), ErrorKind::Misconfigured, "{one:#}");
    std::fs::remove_dir_all(folder).expect("a folder");
    let one = backend(Kind::Sqlite, &url).await.expect_err("there is no folder");
    assert_eq!(one.kind(), ErrorKind::Misconfigured, "{one:#}");
}

/// A purge commits small portions, so that others can write between them: one that fails late has deleted
/// what came before.
#[tokio::test]
async fn a_purge_goes_in_portions() {
    let (url, path) = new_file().await;
    let locks = SqliteLock::connect(&url.parse().expect("an address")).await.expect("a file");
    let sql = "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 3000)
        INSERT INTO files SELECT printf('n%04d', n), zeroblob(16), n, NULL, 0, 'old', 0, 0 FROM n;
        CREATE TRIGGER late BEFORE DELETE ON files WHEN old.name = 'n2900' BEGIN SELECT RAISE(ABORT, 'no'); END;";
    admin(Kind::Sqlite, &url, sql).await;
    locks.purge(Duration::from_secs(1)).await.expect_err("the trigger forbids it");
    let left: usize = count(Kind::Sqlite, &url, "files").await.parse().expect("a number");
    assert!((101..1000).contains(&left), "{left} rows are left in {}", path.display());
    admin(Kind::Sqlite, &url, "DROP TRIGGER late").await;
    let held = claim("held", Mode::Exclusive, TTL);
    locks.acquire(&held).await.expect("an answer").expect("a free lock");
    assert_eq!(locks.purge(Duration::from_secs(1)).await.expect("an answer"), left as u64);
    assert_eq!(count(Kind::Sqlite, &url, "files").await, "1");
}
