//! The memory backend with one defect in its records.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lockwell_core::backend::{
    Capabilities, Claim, Clock, DistributedLock, Error, ErrorKind, Grant, LockName, LockStatus, MemoryLock,
    Mode, Moment, Record, RecordKind, RecordWrite, Released, Renewal, Result, StoredRecord, async_trait,
};

use crate::defect::Defect;
use crate::flawed_lock::Controls;
use crate::lock;

#[derive(Debug)]
pub(crate) struct Recording {
    defect: Defect,
    controls: Controls,
    right: MemoryLock,
    /// The last write of each record, and the one before it.
    records: Mutex<HashMap<(LockName, RecordKind), Writes>>,
}

type Writes = (StoredRecord, Option<StoredRecord>);

impl Recording {
    pub(crate) fn new(defect: Defect, controls: &Controls) -> Self {
        let right = MemoryLock::with_clock(controls.clock.clone());
        Self { defect, controls: controls.clone(), right, records: Mutex::default() }
    }

    fn is(&self, defect: Defect) -> bool {
        self.defect == defect
    }

    fn count(&self) {
        self.controls.requests.fetch_add(1, Ordering::SeqCst);
    }

    fn key(&self, name: &LockName, kind: RecordKind) -> (LockName, RecordKind) {
        (name.clone(), if self.is(Defect::MixesRecordKinds) { RecordKind::Value } else { kind })
    }

    /// Whether the holder of this grant may write.
    async fn may_write(&self, grant: &Grant, kind: RecordKind) -> Result<bool> {
        let holders = self.right.inspect(grant.claim().name()).await?.holders;
        let is_alone = |mode| mode == Mode::Exclusive || self.is(Defect::IgnoresTheMode);
        let mut of_owner = holders.iter().filter(|holder| holder.token == grant.last_token());
        let is_mine = of_owner.any(|holder| is_alone(holder.mode));
        let last = lock(&self.records).get(&self.key(grant.claim().name(), kind)).map(|(last, _)| last.token);
        Ok(match self.defect {
            Defect::WritesByName => !holders.is_empty(),
            Defect::WritesUnlessTaken => is_mine || holders.is_empty(),
            Defect::ComparesRecordedTokens => last.is_none_or(|last| last <= grant.token()),
            Defect::KnowsWritersByTheirClaims => {
                let until = self.controls.clock.now().after(Duration::from_secs(1));
                matches!(
                    self.right.renew(std::slice::from_ref(grant), until).await[..],
                    [Renewal::Renewed(_)]
                )
            }
            _ => is_mine,
        })
    }

    fn write(&self, grant: &Grant, write: RecordWrite<'_>) -> Result<()> {
        let mut stored = StoredRecord::parse(&StoredRecord::text(grant, &write))?;
        let mut records = lock(&self.records);
        let key = self.key(grant.claim().name(), write.kind);
        let before = records.get(&key).map(|(last, _)| last.clone());
        let late = before.as_ref().filter(|last| !last.is_before(grant, &write));
        if let Some(last) = late.filter(|_| !self.is(Defect::IgnoresNumbers)) {
            let found = Some(last.writer()).filter(|_| !self.is(Defect::RefusesRepeats));
            return write.answer(grant, found);
        }
        if self.is(Defect::CutsRecords) {
            stored.value = stored.value.into_iter().take_while(|byte| *byte != 0).collect();
        }
        records.insert(key, (stored, before));
        Ok(())
    }
}

#[async_trait]
impl DistributedLock for Recording {
    fn capabilities(&self) -> Capabilities {
        self.right.capabilities()
    }

    fn clock(&self) -> Clock {
        self.right.clock()
    }

    async fn acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        self.count();
        if self.is(Defect::AsksForRecords) && self.right.inspect(claim.name()).await?.is_free() {
            let recorded = lock(&self.records).contains_key(&self.key(claim.name(), RecordKind::Value));
            if recorded {
                self.count();
            }
        }
        self.right.acquire(claim).await
    }

    async fn renew(&self, grants: &[Grant], until: Moment) -> Vec<Renewal> {
        self.right.renew(grants, until).await
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        self.count();
        if self.is(Defect::KeepsRecordsInTheRow) {
            lock(&self.records).retain(|(name, _), _| name != claim.name());
        }
        self.right.release(claim).await
    }

    async fn downgrade(&self, grant: &Grant) -> Result<Grant> {
        self.right.downgrade(grant).await
    }

    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        self.right.inspect(name).await
    }

    async fn force_release(&self, name: &LockName) -> Result<usize> {
        self.right.force_release(name).await
    }

    async fn write_record(&self, grant: &Grant, write: RecordWrite<'_>) -> Result<()> {
        self.count();
        if !self.may_write(grant, write.kind).await? {
            return write.answer(grant, None);
        }
        if self.is(Defect::LooksThenWrites) {
            self.controls.clock.sleep(Duration::from_millis(5)).await;
        }
        self.write(grant, write)
    }

    async fn read_record(
        &self,
        name: &LockName,
        kind: RecordKind,
        under: Option<&Grant>,
    ) -> Result<Option<Record>> {
        if self.is(Defect::ReadsForWritersOnly)
            && under.is_some_and(|grant| grant.claim().mode() != Mode::Exclusive)
        {
            return Err(Error::new(ErrorKind::Lost, "the lock is not held alone"));
        }
        let records = lock(&self.records);
        let Some((last, before)) = records.get(&self.key(name, kind)) else { return Ok(None) };
        let read = if self.is(Defect::ReadsOldRecords) { before.as_ref() } else { Some(last) };
        Ok(read.cloned().and_then(StoredRecord::record))
    }

    async fn records(&self, kind: RecordKind) -> Result<Vec<LockName>> {
        let records = lock(&self.records);
        let there = records.iter().filter(|((_, of), (last, _))| *of == kind && !last.value.is_empty());
        Ok(there.map(|((name, _), _)| name.clone()).collect())
    }
}
