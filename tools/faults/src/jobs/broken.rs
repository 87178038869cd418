//! Records that are broken on purpose, one for each sign by which the check of jobs tells. The same hosts that
//! the scenario has run jobs on them, and are ended in the middle; the same records without a defect come
//! out clean.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lockwell::backend::{
    Claim, DistributedLock, Grant, MemoryLock, Moment, Record, RecordKind, RecordWrite, Released, Renewal,
    async_trait,
};
use lockwell::{Capabilities, LockName, LockStatus, Locks, Result};
use tokio::task::JoinHandle;

use super::notes::Notes;
use super::{Stored, check, host, stored};
use crate::checker::rules::Findings;
use crate::plan::{Crew, Until, Work};

/// How often a host is ended in the middle, and how long after the one before.
const KILLS: usize = 40;
const APART: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Defect {
    /// Work begins without a record of it.
    BeginsUnrecorded,
    /// That a key is done is told, and not recorded.
    ForgetsSuccess,
    /// Attempts are not counted.
    ForgetsAttempts,
    /// Nothing.
    None,
}

#[derive(Debug)]
struct Forgetful {
    defect: Defect,
    right: MemoryLock,
}

impl Forgetful {
    /// Whether a write that says this of the newest key is lost.
    fn loses(&self, text: &str) -> bool {
        let newest = text.rsplit("\"end\":\"").next().unwrap_or_default();
        match self.defect {
            Defect::BeginsUnrecorded => newest.starts_with("begun"),
            Defect::ForgetsSuccess => newest.starts_with("done"),
            Defect::ForgetsAttempts | Defect::None => false,
        }
    }
}

#[async_trait]
impl DistributedLock for Forgetful {
    fn capabilities(&self) -> Capabilities {
        self.right.capabilities()
    }

    async fn acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        self.right.acquire(claim).await
    }

    async fn renew(&self, grants: &[Grant], until: Moment) -> Vec<Renewal> {
        self.right.renew(grants, until).await
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        self.right.release(claim).await
    }

    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        self.right.inspect(name).await
    }

    async fn force_release(&self, name: &LockName) -> Result<usize> {
        self.right.force_release(name).await
    }

    async fn write_record(&self, grant: &Grant, write: RecordWrite<'_>) -> Result<()> {
        if self.loses(&String::from_utf8_lossy(write.value)) {
            return Ok(());
        }
        self.right.write_record(grant, write).await
    }

    async fn read_record(
        &self,
        name: &LockName,
        kind: RecordKind,
        under: Option<&Grant>,
    ) -> Result<Option<Record>> {
        let mut found = self.right.read_record(name, kind, under).await?;
        if let (Defect::ForgetsAttempts, Some(record)) = (self.defect, &mut found) {
            let text = String::from_utf8_lossy(&record.value).into_owned();
            record.value = text.replace("\"n\":2", "\"n\":1").replace("\"n\":3", "\"n\":1").into_bytes();
        }
        Ok(found)
    }
}

/// What two hosts show, of which one is ended and started again all the time; and how often that was in the
/// middle of a job.
async fn show(defect: Defect, seed: u64) -> (Findings, u64) {
    let folder = tempfile::tempdir().unwrap();
    let server = Arc::new(Forgetful { defect, right: MemoryLock::new() });
    let crew = Crew { workers: 2, tasks: 3, locks: 2, hold: 15_000, jobs: true, ..Crew::USUAL };
    let until = Until::later();
    let locks = || Locks::new(Arc::clone(&server) as Arc<dyn DistributedLock>).unwrap();
    let work = |worker: u32| Work {
        worker,
        prefix: "jobs".to_owned(),
        crew,
        modes: Vec::new(),
        ttl: 1_500_000,
        wait: 0,
        seed,
        history: folder.path().join(format!("worker-{worker}")),
        witness: PathBuf::new(),
    };
    let start = |worker: u32| -> JoinHandle<()> {
        let (locks, work, until) = (locks(), work(worker), until.clone());
        tokio::spawn(async move { host(&locks, &work, &until).await.unwrap() })
    };
    let mut hosts = [start(0), start(1)];
    for kill in 0..KILLS {
        tokio::time::sleep(APART).await;
        let host = &mut hosts[kill % 2];
        host.abort();
        (&mut *host).await.unwrap_err();
        *host = start(u32::try_from(kill % 2).unwrap());
    }
    tokio::time::sleep(APART).await;
    // The last to be ended leaves a key to the others, who may be at earlier ones.
    let are_done = async || {
        let stored = stored(&locks(), &work(0).names()).await.unwrap_or_else(|error| panic!("{error}"));
        stored.into_values().all(Stored::is_over)
    };
    let end = Moment::now().after(Duration::from_secs(30));
    while defect == Defect::None && !are_done().await && !end.has_passed() {
        tokio::time::sleep(APART).await;
    }
    until.now();
    for host in hosts {
        host.await.unwrap();
    }
    let mut notes = Notes::default();
    for worker in 0..crew.workers {
        notes.read(worker, &work(worker).history).unwrap();
    }
    let stored = stored(&locks(), &work(0).names()).await.unwrap_or_else(|error| panic!("{error}"));
    let mut findings = Findings::default();
    check(&notes, &stored, &mut findings);
    (findings, notes.died.values().flatten().sum())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn each_broken_record_is_caught_and_the_same_without_a_defect_is_clean() {
    for defect in [Defect::BeginsUnrecorded, Defect::ForgetsSuccess, Defect::ForgetsAttempts, Defect::None] {
        let (findings, died) = show(defect, 7).await;
        assert!(died > 0, "{defect:?}: nobody was ended in the middle of a job");
        let is_right = match defect {
            Defect::BeginsUnrecorded | Defect::ForgetsAttempts => findings.jobs_repeated > 0,
            Defect::ForgetsSuccess => findings.jobs_repeated > 0 && findings.jobs_not_done > 0,
            Defect::None => findings.is_clean(),
        };
        assert!(is_right, "{defect:?}: {findings:#?}");
    }
}
