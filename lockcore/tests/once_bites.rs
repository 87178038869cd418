//! The rules of jobs that run once for a key bite: hosts that break one of them are caught, each by a scenario
//! that hosts without a defect pass. All that these hosts do is what the library does; they see or store other
//! records.

#[path = "support/host.rs"]
mod host;

use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use lockwell_core::testing::TestServer;
use lockwell_core::{
    DistributedLock, Error, Grant, Keyed, LockName, LockRequest, Locks, Once, Record, RecordKind,
    RecordWrite, Result,
};
use serde_json::{Value, json};

use host::{Between, host};

const DAY: &str = "2026-11-29";
const THE_DAY_BEFORE: &str = "2026-11-28";

#[derive(Clone, Copy, Debug, PartialEq)]
enum Defect {
    None,
    /// A day counts as done if it, or a later one, is.
    KeysByOrder,
    /// It writes that the key is done, and then works.
    DoneBeforeWork,
    /// It repeats an attempt that failed while it waited.
    WaitersRunFailures,
    /// It works without writing that it begins.
    NoBegun,
    /// Under the lock it does not look again.
    DoesNotLookAgain,
}

#[derive(Debug)]
struct Defective {
    defect: Defect,
    /// What it has read without the lock.
    seen: Mutex<Option<Record>>,
}

impl Defective {
    fn locks(server: &TestServer, defect: Defect) -> Locks {
        host(server, Self { defect, seen: Mutex::default() })
    }
}

/// The record with its keys changed.
fn changed(text: &[u8], change: impl FnOnce(&mut Vec<Value>)) -> Vec<u8> {
    let mut record: Value = serde_json::from_slice(text).unwrap();
    change(record["keys"].as_array_mut().unwrap());
    serde_json::to_vec(&record).unwrap()
}

/// The ends of some attempts are others.
fn ends(text: &[u8], from: &str, to: &str) -> Vec<u8> {
    changed(text, |keys| {
        for key in keys.iter_mut().filter(|key| key["end"] == from) {
            key["end"] = json!(to);
        }
    })
}

/// The day before is done if the day is.
fn by_order(text: &[u8]) -> Vec<u8> {
    changed(text, |keys| {
        if let Some(mut done) = keys.iter().find(|key| key["key"] == DAY && key["end"] == "done").cloned() {
            done["key"] = json!(THE_DAY_BEFORE);
            keys.insert(0, done);
        }
    })
}

#[async_trait]
impl Between for Defective {
    async fn write(&self, server: &dyn DistributedLock, grant: &Grant, write: RecordWrite<'_>) -> Result<()> {
        let value = match self.defect {
            Defect::DoneBeforeWork => ends(write.value, "begun", "done"),
            Defect::NoBegun if write.value.windows(7).any(|part| part == b"\"begun\"") => return Ok(()),
            _ => write.value.to_vec(),
        };
        server.write_record(grant, RecordWrite { value: &value, ..write }).await
    }

    async fn read(
        &self,
        server: &dyn DistributedLock,
        name: &LockName,
        kind: RecordKind,
        under: Option<&Grant>,
    ) -> Result<Option<Record>> {
        if self.defect == Defect::DoesNotLookAgain && under.is_some() {
            return Ok(self.seen.lock().unwrap().clone());
        }
        let mut found = server.read_record(name, kind, under).await?;
        if let Some(record) = &mut found {
            match self.defect {
                Defect::KeysByOrder => record.value = by_order(&record.value),
                Defect::WaitersRunFailures if under.is_some() => {
                    record.value = ends(&record.value, "failed", "begun");
                }
                _ => (),
            }
        }
        self.seen.lock().unwrap().clone_from(&found);
        Ok(found)
    }
}

async fn run(request: LockRequest<Keyed>) -> Once<u32> {
    request.try_run(async |run| Ok::<_, Error>(run.attempt())).await.unwrap()
}

/// A host that comes and goes without a word in the middle of the job.
async fn die(locks: &Locks) {
    let (say, said) = tokio::sync::oneshot::channel();
    let dies = locks.once("a", DAY).attempts(1).try_run(async |_| {
        say.send(()).unwrap();
        std::future::pending::<Result<(), Error>>().await
    });
    tokio::select! {
        end = dies => panic!("{end:?}"),
        began = said => began.unwrap(),
    }
}

/// What a host comes to that waits while the other one works, and ends so.
async fn waits(one: &Locks, two: &Locks, end: Result<u32>) -> Once<u32> {
    let (waits, other) = (two.once("a", DAY), two.clone());
    let (_, end) = tokio::join!(
        one.once("a", DAY).try_run(async move |_| {
            while other.inspect("a").await?.waiters == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            end
        }),
        async {
            while one.job("a").await.unwrap().is_empty() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            run(waits).await
        }
    );
    end
}

/// Whether hosts with this defect keep this rule.
async fn is_kept(rule: Rule, defect: Defect) -> bool {
    let server = TestServer::new();
    let (one, two) = (Defective::locks(&server, defect), Defective::locks(&server, defect));
    match rule {
        Rule::MissedDays => {
            assert_eq!(run(one.once("a", DAY)).await, Once::Ran(1));
            run(two.once("a", THE_DAY_BEFORE)).await == Once::Ran(1)
        }
        Rule::AtLeastOnce => {
            die(&one).await;
            matches!(run(two.once("a", DAY).attempts(2)).await, Once::Ran(_))
        }
        Rule::AtMostSoOften => {
            die(&one).await;
            matches!(run(two.once("a", DAY).attempts(1)).await, Once::GivenUp(_))
        }
        Rule::FailuresRest => {
            let failed = Err(Error::new(lockwell_core::ErrorKind::Internal, "by itself"));
            matches!(waits(&one, &two, failed).await, Once::FailedElsewhere(_))
        }
        Rule::DoneOnce => matches!(waits(&one, &two, Ok(1)).await, Once::Done(_)),
    }
}

#[derive(Clone, Copy, Debug)]
enum Rule {
    MissedDays,
    AtLeastOnce,
    AtMostSoOften,
    FailuresRest,
    DoneOnce,
}

#[tokio::test]
async fn each_defect_is_found() {
    for (rule, defect) in [
        (Rule::MissedDays, Defect::KeysByOrder),
        (Rule::AtLeastOnce, Defect::DoneBeforeWork),
        (Rule::FailuresRest, Defect::WaitersRunFailures),
        (Rule::AtMostSoOften, Defect::NoBegun),
        (Rule::DoneOnce, Defect::DoesNotLookAgain),
    ] {
        assert!(is_kept(rule, Defect::None).await, "{rule:?}");
        assert!(!is_kept(rule, defect).await, "{rule:?} does not find {defect:?}");
    }
}
