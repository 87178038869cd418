//! What a power cut leaves of an SQLite file. A process that is killed loses nothing, so that would show
//! nothing: here all writes of a process are recorded, and files are made of them as a disk may have them at
//! any moment. What was written after the last fsync of a file is there or not, in any order, and the last
//! sectors may be torn.
//!
//! With `durability=disk` each grant that was answered must be there. By default it need not be, since its
//! holder is gone as well; but the file must be intact, and no token may come twice.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write as _;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::join_all;
use lockwell_core::{Claim, Grant, LockName, Mode, Renewal, Wait};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection};

use crate::disk::{Disk, WriteOutcome, apply};
use crate::record::{DATABASE, LOG, MARKS, Op, record};
use crate::servers::{Kind, backend, claim, permit, soon};
use crate::sqlite_child::command;

const TTL: Duration = Duration::from_mins(10);
/// Tokens for five minutes of the clock. After a few grants the tokens of a lock are ahead of the clock,
/// which then cannot hide that one was forgotten.
const TOKENS: NonZeroU32 = NonZeroU32::new(330_000_000).expect("not zero");
/// The mode of a lock that is being downgraded.
const EITHER: i64 = i64::MIN;
/// The clock of SQLite has milliseconds.
const BLUR: u128 = 2_000;

/// Says what was answered, in a file whose writes are recorded in order with those of the database.
struct Marks(File);

impl Marks {
    fn say(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).expect("a mark");
    }

    fn held(&mut self, grant: &Grant, since: u128) {
        let claim = grant.claim();
        let (owner, until) = (format!("{:032x}", claim.owner().as_u128()), since + TTL.as_micros() - BLUR);
        let (token, mode) = (grant.last_token(), claim.mode().code());
        self.say(&format!("held {} {owner} {token} {until} {mode}", claim.name()));
    }

    fn gone(&mut self, claim: &Claim) {
        self.say(&format!("gone {} {:032x}", claim.name(), claim.owner().as_u128()));
    }
}

fn now() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_micros()
}

fn reserving(name: &str, mode: Mode) -> Claim {
    claim(name, mode, TTL).reserving(TOKENS)
}

/// What the recorded process does.
pub(crate) async fn everything(url: &str) {
    let file = url.trim_start_matches("sqlite://").split('?').next().expect("a path");
    let mut marks = Marks(File::create(format!("{file}-marks")).expect("a file"));
    let one = backend(Kind::Sqlite, url).await.expect("a file");
    let mut beside = SqliteConnectOptions::new().filename(file).connect().await.expect("a connection");
    for checkpoint in
        ["SELECT 1", "PRAGMA wal_checkpoint(PASSIVE)", "PRAGMA wal_checkpoint(TRUNCATE)", "SELECT 1"]
    {
        // Alone, with a waiter behind.
        let since = now();
        let mut grant =
            one.acquire(&reserving("a", Mode::Exclusive)).await.expect("an answer").expect("free");
        marks.held(&grant, since);
        let name = LockName::new("a").expect("a good name");
        let next = Claim::new(name.clone(), Mode::Exclusive, TTL, Wait::Forever, "next".into());
        let next = next.reserving(TOKENS);
        let (waiting, queued) = (std::sync::Arc::clone(&one), next.clone());
        let waiting = tokio::spawn(async move { waiting.acquire(&queued).await });
        while one.inspect(&name).await.expect("an answer").waiters == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        for _ in 0..2 {
            renew(&one, &[&grant], &mut marks).await;
        }
        marks.gone(grant.claim());
        let since = now();
        one.release(grant.claim()).await.expect("an answer");
        grant = waiting.await.expect("no panic").expect("an answer").expect("its turn");
        marks.held(&grant, since);
        let since = now();
        marks.say(&format!("changing a {:032x}", grant.claim().owner().as_u128()));
        grant = one.downgrade(&grant).await.expect("held");
        marks.held(&grant, since - (TTL.as_micros() / 2));
        // With nobody else about.
        let since = now();
        let lone = one.acquire(&reserving("c", Mode::Exclusive)).await.expect("an answer").expect("free");
        marks.held(&lone, since);
        marks.gone(lone.claim());
        one.release(lone.claim()).await.expect("an answer");
        marks.say("released");
        // Together.
        let mut group = vec![grant];
        for (name, mode) in [("a", Mode::Shared), ("p", permit(2)), ("p", permit(2))] {
            let since = now();
            let grant = one.acquire(&reserving(name, mode)).await.expect("an answer").expect("free");
            marks.held(&grant, since);
            group.push(grant);
        }
        renew(&one, &group.iter().collect::<Vec<_>>(), &mut marks).await;
        sqlx::raw_sql(checkpoint).execute(&mut beside).await.expect("a statement");
        // Many at once.
        let claims: Vec<_> = (0..4).map(|n| reserving(&format!("b{n}"), Mode::Exclusive)).collect();
        let since = now();
        for grant in one.acquire_each(&claims).await {
            let grant = grant.expect("an answer").expect("free");
            marks.held(&grant, since);
            group.push(grant);
        }
        for grant in &group {
            marks.gone(grant.claim());
        }
        join_all(group.iter().map(|grant| one.release(grant.claim()))).await;
    }
    marks.say("end");
    // The files stay as they are.
    std::process::exit(0);
}

async fn renew(
    one: &std::sync::Arc<dyn lockwell_core::DistributedLock>,
    grants: &[&Grant],
    marks: &mut Marks,
) {
    let since = now();
    let grants: Vec<_> = grants.iter().copied().cloned().collect();
    for (answer, grant) in one.renew(&grants, soon()).await.iter().zip(&grants) {
        assert!(matches!(answer, Renewal::Renewed(_)), "{answer:?}");
        marks.held(grant, since);
    }
}

/// What must be there: by name and owner, the token, the earliest end of the lease, and the mode; and the
/// highest token of each name.
#[derive(Default)]
struct Promises {
    held: HashMap<(String, String), (i64, i64, i64)>,
    highest: HashMap<String, i64>,
}

impl Promises {
    fn note(&mut self, mark: &str) {
        match mark.split(' ').collect::<Vec<_>>()[..] {
            ["held", name, owner, ref numbers @ ..] => {
                let number = |n: usize| numbers[n].parse::<i64>().expect("a number");
                let token = number(0);
                self.held.insert((name.to_owned(), owner.to_owned()), (token, number(1), number(2)));
                let highest = self.highest.entry(name.to_owned()).or_default();
                *highest = token.max(*highest);
            }
            ["changing", name, owner] => {
                let held = self.held.get_mut(&(name.to_owned(), owner.to_owned())).expect("held");
                held.2 = EITHER;
            }
            ["gone", name, owner] => {
                self.held.remove(&(name.to_owned(), owner.to_owned()));
            }
            _ => {}
        }
    }
}

/// Name, owner, token, end of the lease, mode.
type Row = (String, String, i64, Option<i64>, i64);

/// Writes what the cut has left, and looks whether it is a database.
async fn restored(folder: &Path, files: &[Vec<u8>; 2]) -> Result<SqliteConnection, String> {
    let path = folder.join("locks.db");
    for (end, content) in [("", Some(&files[DATABASE])), ("-wal", Some(&files[LOG])), ("-shm", None)] {
        let path = PathBuf::from(format!("{}{end}", path.display()));
        match content {
            Some(content) => std::fs::write(path, content).expect("written"),
            None => drop(std::fs::remove_file(path)),
        }
    }
    let open = SqliteConnectOptions::new().filename(&path).pragma("synchronous", "OFF");
    let mut conn = open.connect().await.map_err(|error| failed(&error))?;
    let intact: String = sqlx::query_scalar("PRAGMA integrity_check")
        .fetch_one(&mut conn)
        .await
        .map_err(|error| failed(&error))?;
    if intact == "ok" { Ok(conn) } else { Err(intact) }
}

fn failed(error: &sqlx::Error) -> String {
    format!("{error:#}")
}

/// Looks for all that was promised.
async fn check_kept(folder: &Path, files: &[Vec<u8>; 2], promises: &Promises) -> Result<(), String> {
    let mut conn = restored(folder, files).await?;
    if promises.highest.is_empty() {
        return conn.close().await.map_err(|error| failed(&error));
    }
    let rows: Vec<Row> = sqlx::query_as(
        "SELECT name, lower(hex(owner)), token, expires_at, mode FROM power
        UNION ALL SELECT name, lower(hex(owner)), token, expires_at, mode FROM power_members",
    )
    .fetch_all(&mut conn)
    .await
    .map_err(|error| failed(&error))?;
    conn.close().await.map_err(|error| failed(&error))?;
    for ((name, owner), (token, until, mode)) in &promises.held {
        let is_kept = |row: &Row| {
            (&row.0, &row.1, row.2) == (name, owner, *token)
                && [row.4, EITHER].contains(mode)
                && row.3.is_some_and(|end| end >= *until)
        };
        if !rows.iter().any(is_kept) {
            return Err(format!("{name} of {owner}, {token}, {until}, {mode}, is gone: {rows:?}"));
        }
    }
    for (name, token) in &promises.highest {
        if !rows.iter().any(|row| row.0 == *name && row.2 >= *token) {
            return Err(format!("the token {token} of {name} is forgotten: {rows:?}"));
        }
    }
    Ok(())
}

/// Takes all locks, as a process does after the host has started again, and compares the tokens.
async fn check_tokens(parent: &Path, files: &[Vec<u8>; 2], promises: &Promises) -> Result<(), String> {
    // A folder of its own: the connections of the last check are closed by other threads.
    let folder = tempfile::tempdir_in(parent).expect("a folder");
    let folder = folder.path();
    let mut conn = restored(folder, files).await?;
    if !promises.highest.is_empty() {
        // To start takes longer than the places of dead waiters count.
        let start = "UPDATE power_state SET boot = 'before', raised_at = 0; DELETE FROM power_queue";
        let another = sqlx::raw_sql(start).execute(&mut conn).await;
        another.map_err(|error| failed(&error))?;
    }
    conn.close().await.map_err(|error| failed(&error))?;
    let url = format!("sqlite://{}?table=power&durability=grace", folder.join("locks.db").display());
    let one = backend(Kind::Sqlite, &url).await.map_err(|error| format!("{error:#}"))?;
    for (name, token) in &promises.highest {
        let name = LockName::new(name).expect("a good name");
        one.force_release(&name).await.map_err(|error| format!("{error:#}"))?;
        let claim = claim(name.as_str(), Mode::Exclusive, TTL);
        let grant = one.acquire(&claim).await.map_err(|error| format!("{error:#}"))?.expect("free");
        if grant.token().get() <= token.cast_unsigned() {
            return Err(format!("{name} had the token {token}, and now {}", grant.token()));
        }
    }
    Ok(())
}

/// What a run has shown.
struct Shown {
    cuts: usize,
    grants: usize,
    syncs: usize,
    /// Releases alone that waited for no sync.
    free_releases: usize,
}

/// Records a process, and cuts the power at each of its marks and syncs. `None`: not possible here.
async fn cut_everywhere(durability: &str) -> Option<Shown> {
    // On a disk: in memory everything is synced, which costs nothing there.
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let file = place.path().join("locks.db").display().to_string();
    let url = format!("sqlite://{file}?table=power&durability={durability}");
    let ops = record(&file, || command("record", &url)).await?;
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    let folder = folder.expect("a folder");
    let (mut disk, mut promises, mut seen) = (Disk::default(), Promises::default(), HashSet::new());
    let (mut shown, mut releasing) = (Shown { cuts: 0, grants: 0, syncs: 0, free_releases: 0 }, false);
    // Without syncs much is pending.
    let steps = if durability == "disk" { 1000 } else { 5 };
    for (at, op) in ops.iter().enumerate() {
        let mark = (op.file == MARKS).then(|| String::from_utf8_lossy(&op.data).into_owned());
        if let Some(mark) = &mark {
            promises.note(mark);
            shown.grants += usize::from(mark.starts_with("held"));
            // A release alone, from its mark to the next.
            shown.free_releases += usize::from(releasing && mark == "released");
            releasing = mark.starts_with("gone");
        } else if op.is_sync() {
            releasing = false;
            shown.syncs += 1;
        }
        if mark.is_some() || op.is_sync() {
            for outcomes in disk.endings(steps) {
                let files = disk.with(&outcomes);
                let mut hash = DefaultHasher::new();
                (&files, promises.held.len(), mark.as_deref()).hash(&mut hash);
                if !seen.insert(hash.finish()) {
                    continue;
                }
                shown.cuts += 1;
                let checked = match durability {
                    "disk" => check_kept(folder.path(), &files, &promises).await,
                    _ => check_tokens(folder.path(), &files, &promises).await,
                };
                if let Err(what) = checked {
                    let pending = disk.pending.len();
                    panic!("{durability}: a cut at {at} of {}, {pending} writes pending: {what}", ops.len());
                }
            }
        }
        if op.is_sync() {
            let (synced, pending) = disk.pending.iter().partition(|one| one.file == op.file);
            let synced: Vec<&Op> = synced;
            disk.pending = pending;
            for one in synced {
                apply(&mut disk.synced[op.file], one, WriteOutcome::There);
            }
        } else if mark.is_none() {
            disk.pending.push(op);
        }
    }
    let Shown { cuts, grants, syncs, free_releases } = shown;
    println!(
        "{durability}: {cuts} cuts in {} writes; {grants} grants, {syncs} syncs, {free_releases}",
        ops.len()
    );
    Some(shown)
}

#[tokio::test]
async fn what_was_granted_survives_a_power_cut() {
    let Some(shown) = cut_everywhere("disk").await else { return };
    assert_eq!(shown.free_releases, 4, "a release need not wait for the disk");
    assert!(shown.syncs >= shown.grants / 2, "grants that meet share a sync, and each has one");
}

/// Syncs are left for the creation of the file, for two checkpoints, and for the bound, whenever it is
/// raised.
#[tokio::test]
async fn tokens_survive_a_power_cut_without_syncs() {
    let Some(shown) = cut_everywhere("grace").await else { return };
    assert!(
        shown.grants > 50 && shown.syncs < shown.grants / 3,
        "{} grants, {} syncs",
        shown.grants,
        shown.syncs
    );
}
