//! Records: what only the present holder of a lock can write.

use super::stage::{LATE, Stage, assert_within, claim, done, pause, release, secs, ttl_of, within};
use super::time::now;
use lockwell_core::{
    ErrorKind, Grant, LockGuard, LockName, Locks, Mode, Record, RecordKind, RecordWrite, Released,
    Requirement, Result,
};

const NUMBERED: [&[u8]; 3] = [b"first", b"second", b"third"];

/// The write of this number to the record of the application.
fn write(number: usize) -> RecordWrite<'static> {
    RecordWrite { kind: RecordKind::Value, number: number as u64, value: NUMBERED[number - 1] }
}

/// A hold that nobody renews, of a claim that the backend gets as it is.
async fn hold(locks: &Locks, name: &LockName, mode: Mode) -> Grant {
    let claim = claim(name, mode, ttl_of(locks, 30_000), within(secs(10)));
    locks.backend().acquire(&claim).await.expect("an answer").expect("a free lock")
}

async fn give_up(locks: &Locks, grant: &Grant) -> Released {
    locks.backend().release(grant.claim()).await.expect("an answer")
}

fn is_lost(answer: Result<()>, what: &str) {
    let error = answer.expect_err(what);
    assert_eq!(error.kind(), ErrorKind::Lost, "{what}: {error:#}");
}

async fn value(locks: &Locks, name: &LockName) -> Option<Vec<u8>> {
    locks.record(name).await.expect("an answer").map(|record| record.value)
}

/// The next holder reads what the last one wrote, and so does one who does not hold the lock.
pub(super) async fn a_record_outlives_its_hold(stage: Stage) {
    let [one, two] = stage.clients().await;
    let name = stage.name("kept");
    let guard = one.lock(&name).await.expect("a free lock");
    assert_eq!(guard.read_record().await.expect("an answer"), None, "nothing was written");
    guard.write_record("first").await.expect("held");
    guard.write_record("second").await.expect("held");
    let written = guard.read_record().await.expect("an answer").expect("it was written");
    assert_eq!((&*written.value, written.token, written.hold), (NUMBERED[1], guard.token(), guard.hold_id()));
    release(guard).await;
    let next = two.lock(&name).wait(secs(10)).await.expect("a free lock");
    let found = next.read_record().await.expect("an answer");
    assert_eq!(found.as_ref(), Some(&written), "the record ended with its hold");
    let listed = one.backend().records(RecordKind::Value).await.expect("a list");
    assert!(listed.contains(&name), "a lock with a record is listed");
    next.write_record("").await.expect("held");
    assert_eq!(next.read_record().await.expect("an answer"), None, "an empty value removes the record");
    next.write_record("third").await.expect("held");
    release(next).await;
    let began = now();
    // Who does not hold the lock may read what was there a moment ago.
    while value(&one, &name).await.as_deref() != Some(NUMBERED[2]) {
        assert_within(began, LATE * 4, || "an old record is still read".to_owned());
        pause(5).await;
    }
}

/// Any bytes, of any length that is allowed.
pub(super) async fn any_bytes_are_a_record(stage: Stage) {
    let one = stage.client().await;
    let guard = one.lock(stage.name("bytes")).wait(secs(10)).await.expect("a free lock");
    let all: Vec<u8> = (0..=255).collect();
    let longest = all.repeat(Record::MAX_BYTES / all.len());
    for bytes in [&b"a\0b"[..], b"\0", b":", b"\n\r\t\\'\"%", &all, &longest] {
        guard.write_record(bytes).await.expect("held");
        let read = guard.read_record().await.expect("an answer").expect("it was written").value;
        assert!(read == bytes, "{} bytes were written, and {} others read", bytes.len(), read.len());
    }
    release(guard).await;
}

/// Each lock has its own record of each kind, whatever its name, and no record is in the way of a lock.
pub(super) async fn records_of_names_and_kinds_are_apart(stage: Stage) {
    let [one, two] = stage.clients().await;
    let plain = ["%record", "%job", "%record/a", ".record"].map(|name| LockName::new(name).expect("allowed"));
    let names = ["a", "A", "a/%record", "a/record", "a:1:2:"].map(|name| stage.name(name));
    let names: Vec<_> = plain.into_iter().chain(names).collect();
    for (number, name) in names.iter().enumerate() {
        let grant = hold(&one, name, Mode::Exclusive).await;
        for kind in RecordKind::ALL {
            let value = format!("{number} {kind:?}");
            let write = RecordWrite { kind, number: 1, value: value.as_bytes() };
            one.backend().write_record(&grant, write).await.expect("held");
        }
        assert_eq!(give_up(&one, &grant).await, Released::Released);
    }
    for (number, name) in names.iter().enumerate() {
        let grant = hold(&two, name, Mode::Exclusive).await;
        for kind in RecordKind::ALL {
            let read = two.backend().read_record(name, kind, Some(&grant)).await.expect("an answer");
            let read = read.unwrap_or_else(|| panic!("{name:?} has lost its {kind:?}"));
            let text = String::from_utf8_lossy(&read.value);
            assert_eq!(text, format!("{number} {kind:?}"), "what {name:?} has as its {kind:?}");
        }
        give_up(&two, &grant).await;
    }
}

/// Who has lost the lock writes nothing, also before the next holder has written.
pub(super) async fn a_late_holder_writes_nothing(stage: Stage) {
    let [one, two] = stage.clients().await;
    let name = stage.name("late");
    let late = hold(&one, &name, Mode::Exclusive).await;
    one.backend().write_record(&late, write(1)).await.expect("held");
    assert_eq!(two.force_release(&name).await.expect("an answer"), 1);
    let next = two.lock(&name).wait(secs(10)).await.expect("a free lock");
    is_lost(one.backend().write_record(&late, write(2)).await, "a late holder wrote under the next one");
    let read = next.read_record().await.expect("an answer").expect("it was written");
    assert_eq!(read.value, NUMBERED[0], "what the next holder reads");
    next.write_record("third").await.expect("held");
    is_lost(one.backend().write_record(&late, write(2)).await, "a late holder wrote over the next one");
    assert_eq!(next.read_record().await.expect("an answer").expect("it was written").value, NUMBERED[2]);
    release(next).await;
}

/// A lock that an operator has freed is nobody's.
pub(super) async fn nothing_is_written_after_a_forced_release(stage: Stage) {
    let [one, two] = stage.clients().await;
    let name = stage.name("freed");
    let late = hold(&one, &name, Mode::Exclusive).await;
    assert_eq!(two.force_release(&name).await.expect("an answer"), 1);
    is_lost(one.backend().write_record(&late, write(1)).await, "it was written after a forced release");
    let own = hold(&one, &name, Mode::Exclusive).await;
    assert_eq!(give_up(&one, &own).await, Released::Released);
    is_lost(one.backend().write_record(&own, write(1)).await, "it was written after a release");
    assert_eq!(value(&two, &name).await, None);
}

/// What the next holder has read stays as it is, whenever a write of the last one arrives.
pub(super) async fn a_late_write_changes_nothing_that_was_read(stage: Stage) {
    const ROUNDS: u64 = 24;
    let [one, two] = stage.clients().await;
    for round in 0..ROUNDS {
        let name = stage.name(round);
        let late = hold(&one, &name, Mode::Exclusive).await;
        let writing = tokio::spawn({
            let (one, late) = (one.clone(), late.clone());
            async move { one.backend().write_record(&late, write(1)).await }
        });
        pause(round % 4).await;
        two.force_release(&name).await.expect("an answer");
        let next = two.lock(&name).wait(secs(10)).await.expect("a free lock");
        let before = next.read_record().await.expect("an answer");
        let answer = done("a write", secs(20), writing).await.expect("no panic");
        let after = next.read_record().await.expect("an answer");
        assert_eq!(before, after, "a late write changed what the next holder had read: {answer:?}");
        match answer {
            Ok(()) => assert!(before.is_some(), "a write was answered, and not done"),
            Err(error) if error.kind() == ErrorKind::Lost => {
                assert_eq!(before, None, "a write was done, and called lost");
            }
            Err(error) => assert!(error.is_retryable(), "{error:#}"),
        }
        release(next).await;
        give_up(&one, &late).await;
    }
}

/// Of the writes of one hold the one with the highest number stays.
pub(super) async fn a_late_copy_of_a_write_changes_nothing(stage: Stage) {
    let one = stage.client().await;
    let name = stage.name("copies");
    let grant = hold(&one, &name, Mode::Exclusive).await;
    for number in [1, 2] {
        one.backend().write_record(&grant, write(number)).await.expect("held");
    }
    // Nobody waits for its answer.
    drop(one.backend().write_record(&grant, write(1)).await);
    assert_eq!(
        value(&one, &name).await.as_deref(),
        Some(NUMBERED[1]),
        "a late copy has replaced a later write"
    );
    let removes = RecordWrite { value: b"", ..write(3) };
    one.backend().write_record(&grant, removes).await.expect("held");
    drop(one.backend().write_record(&grant, write(2)).await);
    assert_eq!(value(&one, &name).await, None, "a late copy has made a removed record again");
    give_up(&one, &grant).await;
    // The numbers of the next hold begin anew.
    let grant = hold(&one, &name, Mode::Exclusive).await;
    one.backend().write_record(&grant, write(1)).await.expect("held");
    let read = one.backend().read_record(&name, RecordKind::Value, Some(&grant)).await.expect("an answer");
    assert_eq!(read.map(|read| read.value).as_deref(), Some(NUMBERED[0]), "the first write of the next hold");
    give_up(&one, &grant).await;
}

/// A client that has lost the answer asks again.
pub(super) async fn a_write_that_is_repeated_is_answered_again(stage: Stage) {
    let one = stage.client().await;
    let name = stage.name("again");
    let grant = hold(&one, &name, Mode::Exclusive).await;
    for what in ["a write", "the same again", "once more"] {
        let answer = one.backend().write_record(&grant, write(2)).await;
        answer.unwrap_or_else(|error| panic!("{what}: {error:#}"));
        assert_eq!(value(&one, &name).await.as_deref(), Some(NUMBERED[1]), "{what}");
    }
    give_up(&one, &grant).await;
}

/// Who holds the lock reads the last write, and its own write is the next one.
pub(super) async fn a_counter_in_a_record_loses_nothing(stage: Stage) {
    const CLIENTS: u64 = 16;
    const TIMES: u64 = 4;
    let name = stage.name("counter");
    let mut adding = Vec::new();
    for _ in 0..CLIENTS {
        let (locks, name) = (stage.client().await, name.clone());
        adding.push(tokio::spawn(async move {
            for _ in 0..TIMES {
                let guard = locks.lock(&name).wait(secs(80)).await.expect("its turn comes");
                let read = guard.read_record().await.expect("an answer");
                let count: u64 =
                    read.map_or(0, |read| String::from_utf8_lossy(&read.value).parse().expect("a number"));
                guard.write_record((count + 1).to_string()).await.expect("held");
                release(guard).await;
            }
        }));
    }
    for adding in adding {
        adding.await.expect("no task fails");
    }
    let guard = stage.client().await.lock(&name).wait(secs(10)).await.expect("a free lock");
    let read = guard.read_record().await.expect("an answer").expect("it was written");
    let count = String::from_utf8_lossy(&read.value).into_owned();
    assert_eq!(count, (CLIENTS * TIMES).to_string(), "additions were lost");
    release(guard).await;
}

/// Neither a reader nor one of several holders writes, nor a writer that has become a reader.
pub(super) async fn only_a_writer_writes(stage: Stage) {
    let one = stage.client().await;
    let promised = one.backend().capabilities();
    if promised.promises(Requirement::Shared) {
        let name = stage.name("read");
        let reader = hold(&one, &name, Mode::Shared).await;
        is_lost(one.backend().write_record(&reader, write(1)).await, "a reader wrote");
        give_up(&one, &reader).await;
    }
    if promised.promises(Requirement::Permits) {
        let name = stage.name("permit");
        let limit = std::num::NonZeroU32::MIN;
        let permit = hold(&one, &name, Mode::Permit { limit }).await;
        is_lost(one.backend().write_record(&permit, write(1)).await, "the holder of a permit wrote");
        give_up(&one, &permit).await;
    }
    if promised.promises(Requirement::Downgrade) {
        let name = stage.name("downgraded");
        let writer = hold(&one, &name, Mode::Exclusive).await;
        one.backend().write_record(&writer, write(1)).await.expect("held");
        let reader = one.backend().downgrade(&writer).await.expect("held");
        is_lost(one.backend().write_record(&writer, write(2)).await, "a late write after a downgrade");
        is_lost(one.backend().write_record(&reader, write(3)).await, "a writer that became a reader wrote");
        assert_eq!(value(&one, &name).await.as_deref(), Some(NUMBERED[0]));
        give_up(&one, &reader).await;
    }
}

/// A late copy of an acquire may be granted after a forced release. Then its claim holds the lock again, and the guard
/// that it had does not.
pub(super) async fn an_earlier_grant_of_a_claim_writes_nothing(stage: Stage) {
    let [one, two] = stage.clients().await;
    let name = stage.name("twice");
    let claim = claim(&name, Mode::Exclusive, ttl_of(&one, 30_000), within(secs(10)));
    let asked = async || one.backend().acquire(&claim).await;
    let late = asked().await.expect("an answer").expect("a free lock");
    assert_eq!(two.force_release(&name).await.expect("an answer"), 1);
    let present = match asked().await {
        Ok(present) => present.expect("a free lock"),
        // It grants nothing to a claim that it has freed.
        Err(error) if error.kind() == ErrorKind::NotHeld => return,
        Err(error) => panic!("{error:#}"),
    };
    is_lost(
        one.backend().write_record(&late, write(2)).await,
        "a hold that was freed wrote under the next one",
    );
    one.backend().write_record(&present, write(1)).await.expect("held");
    is_lost(
        one.backend().write_record(&late, write(3)).await,
        "a hold that was freed wrote over the next one",
    );
    assert_eq!(value(&two, &name).await.as_deref(), Some(NUMBERED[0]));
    give_up(&one, &present).await;
}

/// Also who cannot write reads what the last writer has left.
pub(super) async fn every_holder_reads(stage: Stage) {
    let one = stage.client().await;
    let promises = |what| one.backend().capabilities().promises(what);
    let written = async |which: &str| {
        let guard = one.lock(stage.name(which)).wait(secs(10)).await.expect("a free lock");
        guard.write_record("first").await.expect("held");
        guard
    };
    let freed = async |which: &str| {
        release(written(which).await).await;
        stage.name(which)
    };
    let reads = async |guard: LockGuard, who: &str| {
        let read = guard.read_record().await.unwrap_or_else(|error| panic!("{who}: {error:#}"));
        assert_eq!(read.map(|read| read.value).as_deref(), Some(NUMBERED[0]), "{who}");
        release(guard).await;
    };
    if promises(Requirement::Shared) {
        let reader = one.read(freed("read").await).wait(secs(10)).await.expect("a free lock");
        reads(reader, "a reader").await;
    }
    if promises(Requirement::Permits) {
        let permit = one.permit(freed("permit").await, 2).wait(secs(10)).await.expect("a free lock");
        reads(permit, "the holder of a permit").await;
    }
    if promises(Requirement::Downgrade) {
        let reader = written("downgraded").await.downgrade().await.expect("held");
        reads(reader, "a writer that became a reader").await;
    }
}

pub(super) async fn a_record_survives_a_restart(stage: Stage) {
    let one = stage.client().await;
    let name = stage.name("kept");
    let guard = one.lock(&name).await.expect("a free lock");
    guard.write_record("first").await.expect("held");
    release(guard).await;
    stage.server().restart().await;
    let guard = stage.client().await.lock(&name).wait(secs(40)).await.expect("a free lock");
    let read = guard.read_record().await.expect("an answer").expect("a record was lost by the restart");
    assert_eq!(read.value, NUMBERED[0]);
    release(guard).await;
}

pub(super) async fn a_record_survives_a_purge(stage: Stage) {
    let [one, two] = stage.clients().await;
    let name = stage.name("kept");
    for round in 0..2 {
        let guard = one.lock(&name).wait(secs(10)).await.expect("a free lock");
        guard.write_record("first").await.expect("held");
        release(guard).await;
        pause(20).await;
        stage.harness.purge().await;
        let next = two.lock(&name).wait(secs(10)).await.expect("a free lock");
        let read = next.read_record().await.expect("an answer");
        let read = read.unwrap_or_else(|| panic!("round {round}: a record was lost by the purge"));
        assert_eq!(read.value, NUMBERED[0]);
        release(next).await;
    }
}

/// A server that may have forgotten who holds the lock writes for nobody, and takes no lock for that.
pub(super) async fn nothing_is_written_in_a_grace_period(stage: Stage) {
    let [one, two] = stage.clients().await;
    let name = stage.name("grace");
    let guard = one.lock(&name).await.expect("a free lock");
    guard.write_record("first").await.expect("held");
    two.begin_grace().await.expect("this server has grace periods");
    let error = guard.write_record("second").await.expect_err("it was written in a grace period");
    assert_eq!(error.kind(), ErrorKind::GracePeriod, "{error:#}");
    pause(100).await;
    assert!(guard.is_held(), "a write took the lock from its holder: {:?}", guard.lease_state());
    done("a release", secs(10), guard.release()).await.expect("held");
}

/// A lock costs as many requests with a record as without, and a write costs few.
pub(super) async fn who_writes_no_record_pays_nothing(stage: Stage) {
    const ROUNDS: usize = 8;
    let link = stage.link().await;
    let one = link.client().await.expect("a client").server_order();
    let ttl = ttl_of(&one, 60_000);
    let take = async |name: &LockName| one.lock(name).ttl(ttl).wait(secs(20)).await.expect("a free lock");
    let (with, without) = (stage.name("with"), stage.name("without"));
    let guard = take(&with).await;
    guard.write_record("first").await.expect("held");
    release(guard).await;
    // The least of several counts: a client also says from time to time that it is still there.
    let mut least = [u64::MAX; 3];
    for _ in 0..ROUNDS {
        for (number, name) in [&with, &without].into_iter().enumerate() {
            let before = link.requests();
            release(take(name).await).await;
            least[number] = least[number].min(link.requests() - before);
        }
        let guard = take(&with).await;
        let before = link.requests();
        guard.write_record("second").await.expect("held");
        least[2] = least[2].min(link.requests() - before);
        release(guard).await;
        pause(10).await;
    }
    let [with, without, writes] = least;
    assert_eq!(with, without, "requests for a lock with a record, which nobody writes, and without");
    assert!((1..=2).contains(&writes), "{writes} requests for a write");
}
