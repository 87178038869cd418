//! What a power cut leaves of an SQLite file. A process that is killed loses nothing, so that would show
//! nothing: here all writes of a process are recorded, and files are made of them as a disk may have them at
//! any moment. What was written after the last fsync of a file is there or not, in any order, and the last
//! sectors may be torn.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::join_all;
use lockcore::{Claim, Grant, LockName, Mode, Renewal, Wait};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection};

use crate::record::{DATABASE, LOG, MARKS, Op, record};
use crate::servers::{Kind, backend, claim, permit, soon};
use crate::sqlite_child::command;

const TTL: Duration = Duration::from_mins(10);
const SECTOR: usize = 512;
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
            one.acquire(&claim("a", Mode::Exclusive, TTL)).await.expect("an answer").expect("free");
        marks.held(&grant, since);
        let name = LockName::new("a").expect("a good name");
        let next = Claim::new(name.clone(), Mode::Exclusive, TTL, Wait::Forever, "next".into());
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
        let lone = one.acquire(&claim("c", Mode::Exclusive, TTL)).await.expect("an answer").expect("free");
        marks.held(&lone, since);
        marks.gone(lone.claim());
        one.release(lone.claim()).await.expect("an answer");
        marks.say("released");
        // Together.
        let mut group = vec![grant];
        for (name, mode) in [("a", Mode::Shared), ("p", permit(2)), ("p", permit(2))] {
            let since = now();
            let grant = one.acquire(&claim(name, mode, TTL)).await.expect("an answer").expect("free");
            marks.held(&grant, since);
            group.push(grant);
        }
        renew(&one, &group.iter().collect::<Vec<_>>(), &mut marks).await;
        sqlx::raw_sql(checkpoint).execute(&mut beside).await.expect("a statement");
        // Many at once.
        let claims: Vec<_> = (0..4).map(|n| claim(&format!("b{n}"), Mode::Exclusive, TTL)).collect();
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

async fn renew(one: &std::sync::Arc<dyn lockcore::DistributedLock>, grants: &[&Grant], marks: &mut Marks) {
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

/// What the disk has for sure, and what it may have.
#[derive(Default)]
struct Disk<'a> {
    synced: [Vec<u8>; 2],
    pending: Vec<&'a Op>,
}

/// What becomes of a write that was not synced.
#[derive(Clone, Copy)]
enum WriteOutcome {
    There,
    Lost,
    /// These sectors of it are there.
    Torn(u64),
}

fn apply(file: &mut Vec<u8>, op: &Op, outcome: WriteOutcome) {
    let (at, cut) = (usize::try_from(op.offset).expect("small"), op.is_cut());
    match outcome {
        WriteOutcome::Lost => {}
        _ if cut => file.resize(at, 0),
        _ => {
            file.resize(file.len().max(at + op.data.len()), 0);
            for (n, byte) in op.data.iter().enumerate() {
                if !matches!(outcome, WriteOutcome::Torn(sectors) if sectors >> ((at + n) / SECTOR % 64) & 1 == 0)
                {
                    file[at + n] = *byte;
                }
            }
        }
    }
}

impl Disk<'_> {
    fn with(&self, outcomes: &[WriteOutcome]) -> [Vec<u8>; 2] {
        let mut files = self.synced.clone();
        for (op, outcome) in self.pending.iter().zip(outcomes) {
            apply(&mut files[op.file], op, *outcome);
        }
        files
    }

    /// The ways in which a cut may end, for this many pending writes: all of them for a few, and a choice for
    /// many.
    fn endings(&self) -> Vec<Vec<WriteOutcome>> {
        let count = self.pending.len();
        let mut endings = vec![vec![WriteOutcome::Lost; count], vec![WriteOutcome::There; count]];
        if count <= 4 {
            for chosen in 1..(1_u32 << count) {
                let outcome = |n| if chosen >> n & 1 == 1 { WriteOutcome::There } else { WriteOutcome::Lost };
                endings.push((0..count).map(outcome).collect());
            }
        }
        for n in 0..count {
            for outcome in [
                WriteOutcome::Lost,
                WriteOutcome::Torn(0x5555_5555_5555_5555),
                WriteOutcome::Torn(0x0f0f_0f0f_0f0f_0f0f),
            ] {
                let mut ending = vec![WriteOutcome::There; count];
                ending[n] = outcome;
                endings.push(ending);
            }
        }
        // Always the same numbers, so that a failure can be repeated.
        let mut state = count as u64 + 1;
        for _ in 0..6 {
            let mut ending = Vec::new();
            for _ in 0..count {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                ending.push(match state >> 33 & 3 {
                    0 => WriteOutcome::Lost,
                    1 => WriteOutcome::Torn(state ^ state << 31),
                    _ => WriteOutcome::There,
                });
            }
            endings.push(ending);
        }
        endings
    }
}

/// Name, owner, token, end of the lease, mode.
type Row = (String, String, i64, Option<i64>, i64);

/// Opens what the cut has left, as the next process would, and looks for what was promised.
async fn check(folder: &Path, files: &[Vec<u8>; 2], promises: &Promises) -> Result<(), String> {
    let path = folder.join("locks.db");
    for (end, content) in [("", Some(&files[DATABASE])), ("-wal", Some(&files[LOG])), ("-shm", None)] {
        let path = PathBuf::from(format!("{}{end}", path.display()));
        match content {
            Some(content) => std::fs::write(path, content).expect("written"),
            None => drop(std::fs::remove_file(path)),
        }
    }
    let failed = |error: sqlx::Error| format!("{error:#}");
    let open = SqliteConnectOptions::new().filename(&path).pragma("synchronous", "OFF");
    let mut conn = open.connect().await.map_err(failed)?;
    let intact: String =
        sqlx::query_scalar("PRAGMA integrity_check").fetch_one(&mut conn).await.map_err(failed)?;
    if intact != "ok" {
        return Err(intact);
    }
    if promises.highest.is_empty() {
        return conn.close().await.map_err(failed);
    }
    let rows: Vec<Row> = sqlx::query_as(
        "SELECT name, lower(hex(owner)), token, expires_at, mode FROM power
        UNION ALL SELECT name, lower(hex(owner)), token, expires_at, mode FROM power_members",
    )
    .fetch_all(&mut conn)
    .await
    .map_err(failed)?;
    conn.close().await.map_err(failed)?;
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

#[tokio::test]
async fn what_was_granted_survives_a_power_cut() {
    // On a disk: in memory everything is synced, which costs nothing there.
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let file = place.path().join("locks.db").display().to_string();
    let url = format!("sqlite://{file}?table=power");
    let Some(ops) = record(&file, || command("record", &url)).await else { return };
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    let folder = folder.expect("a folder");
    let (mut disk, mut promises, mut seen) = (Disk::default(), Promises::default(), HashSet::new());
    let (mut cuts, mut releasing, mut free_releases) = (0, false, 0);
    for (at, op) in ops.iter().enumerate() {
        let mark = (op.file == MARKS).then(|| String::from_utf8_lossy(&op.data).into_owned());
        if let Some(mark) = &mark {
            promises.note(mark);
            // A release alone, from its mark to the next, waits for no disk.
            free_releases += usize::from(releasing && mark == "released");
            releasing = mark.starts_with("gone");
        } else if op.is_sync() {
            releasing = false;
        }
        if mark.is_some() || op.is_sync() {
            for outcomes in disk.endings() {
                let files = disk.with(&outcomes);
                let mut hash = DefaultHasher::new();
                (&files, promises.held.len(), mark.as_deref()).hash(&mut hash);
                if seen.insert(hash.finish()) {
                    cuts += 1;
                    if let Err(what) = check(folder.path(), &files, &promises).await {
                        panic!(
                            "a cut at {at} of {}, {} writes pending: {what}",
                            ops.len(),
                            disk.pending.len()
                        );
                    }
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
    println!("{cuts} cuts in {} writes; {free_releases} releases without an fsync", ops.len());
    assert_eq!(free_releases, 4, "a release need not wait for the disk");
}
