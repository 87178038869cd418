//! The record of a held lock: a small value that only the present holder can write.

use std::sync::Arc;

use super::{LockGuard, LockHandle};
use crate::background::Book;
use crate::{Error, ErrorKind, Mode, Operation, Record, RecordKind, RecordWrite, Requirement, Result};

impl LockGuard {
    /// Writes the record of the lock: up to 16 KiB, for the next holders and for
    /// [readers](crate::Locks::record). It outlives the hold. An empty value removes it.
    ///
    /// The server writes only if this very hold is the present one. So a holder that was paused and has lost
    /// the lock changes nothing that the next one has read. A lock whose record was written is not passed
    /// on to another task of this process without the server.
    ///
    /// # Errors
    /// [`Lost`](ErrorKind::Lost), [`InvalidInput`](ErrorKind::InvalidInput) for a reader, a permit, or a
    /// value that is too long, and [`GracePeriod`](ErrorKind::GracePeriod), in which nothing is written and
    /// the hold goes on. After another error the value may have been written, after `Lost` if the connection
    /// broke before; the next write replaces it in any case.
    ///
    /// # Cancel safety
    /// When this future is dropped, the value may or may not be written; the next write replaces it in any
    /// case.
    pub async fn write_record(&self, value: impl AsRef<[u8]>) -> Result<()> {
        self.handle().write_record(value).await
    }

    /// Reads the record of the lock as the holder before has left it, or as this one has written it. `None`:
    /// there is none.
    ///
    /// # Errors
    /// [`Lost`](ErrorKind::Lost), and [`GracePeriod`](ErrorKind::GracePeriod) if the server may have forgotten
    /// the hold, which goes on.
    ///
    /// # Cancel safety
    /// Cancel safe: it only reads.
    pub async fn read_record(&self) -> Result<Option<Record>> {
        self.handle().read_record().await
    }
}

impl LockHandle {
    /// The same as [`LockGuard::write_record`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancel safety
    /// As there.
    pub async fn write_record(&self, value: impl AsRef<[u8]>) -> Result<()> {
        self.write(RecordKind::Value, value.as_ref()).await
    }

    /// The same as [`LockGuard::read_record`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancel safety
    /// Cancel safe: it only reads.
    pub async fn read_record(&self) -> Result<Option<Record>> {
        self.read(RecordKind::Value).await
    }

    /// Nothing that cannot succeed is sent.
    pub(crate) async fn write(&self, kind: RecordKind, value: &[u8]) -> Result<()> {
        let book = self.client_of_held()?;
        let decorate = |error| book.decorate(error, Operation::WriteRecord, Some(self.name()));
        self.may_write(&book, value).map_err(decorate)?;
        // The number rises before anything is sent: what a dropped future has sent is an earlier write.
        let mut number = self.lock().record_number().await;
        self.check()?;
        *number += 1;
        let write = RecordWrite { kind, number: *number, value };
        // Tasks that pass the lock on have one owner at the server.
        self.grant().bind().map_err(decorate)?;
        book.backend.write_record(self.grant(), write).await.map_err(decorate)
    }

    fn may_write(&self, book: &Book, value: &[u8]) -> Result<()> {
        book.capabilities().require(&[Requirement::Records])?;
        if self.claim().mode() != Mode::Exclusive {
            let text = "a record is written under the lock of a writer, not of a reader or with a permit";
            return Err(Error::new(ErrorKind::InvalidInput, text));
        }
        if value.len() > Record::MAX_BYTES {
            let text = format!("a record of {} bytes: {} are allowed", value.len(), Record::MAX_BYTES);
            return Err(Error::new(ErrorKind::InvalidInput, text));
        }
        Ok(())
    }

    pub(crate) async fn read(&self, kind: RecordKind) -> Result<Option<Record>> {
        let book = self.client_of_held()?;
        let decorate = |error| book.decorate(error, Operation::ReadRecord, Some(self.name()));
        book.capabilities().require(&[Requirement::Records]).map_err(decorate)?;
        book.backend.read_record(self.name(), kind, Some(self.grant())).await.map_err(decorate)
    }

    /// A client that has gone has no holds.
    fn client_of_held(&self) -> Result<Arc<Book>> {
        self.check()?;
        let gone = || Error::new(ErrorKind::Lost, "the lock is not held any more").for_lock(self.name());
        self.client().ok_or_else(gone)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing::TestServer;
    use crate::{Locks, Loss};

    fn refused<T: std::fmt::Debug>(answer: Result<T>) -> ErrorKind {
        answer.expect_err("refused").kind()
    }

    #[tokio::test]
    async fn what_cannot_succeed_is_not_sent() {
        let server = TestServer::new();
        let locks = server.locks().unwrap();
        // Whatever is sent fails with this.
        server.fail(Operation::WriteRecord, ErrorKind::Internal);
        let reader = locks.read("r").await.unwrap();
        assert_eq!(refused(reader.write_record("x").await), ErrorKind::InvalidInput);
        let permit = locks.permit("p", 1).await.unwrap();
        assert_eq!(refused(permit.write_record("x").await), ErrorKind::InvalidInput);
        let guard = locks.lock("a").ttl(Duration::from_secs(10)).await.unwrap();
        let long = vec![b'x'; Record::MAX_BYTES + 1];
        assert_eq!(refused(guard.write_record(&long).await), ErrorKind::InvalidInput);
        assert_eq!(refused(guard.write_record(&long[1..]).await), ErrorKind::Internal, "sent");
        let handle = guard.handle();
        server.lose("a").await.unwrap();
        assert_eq!(guard.lost().await, Loss::Taken);
        assert_eq!(refused(guard.write_record("x").await), ErrorKind::Lost);
        assert_eq!(refused(handle.write_record("x").await), ErrorKind::Lost);
        assert_eq!(refused(handle.read_record().await), ErrorKind::Lost);
    }

    #[tokio::test]
    async fn a_handle_writes_while_its_guard_lives() {
        let locks = Locks::in_memory();
        let guard = locks.lock("a").await.unwrap();
        let handle = guard.handle();
        handle.clone().write_record("x").await.unwrap();
        assert_eq!(guard.read_record().await.unwrap().unwrap().value, b"x");
        guard.write_record("").await.unwrap();
        assert_eq!(handle.read_record().await.unwrap(), None);
        assert_eq!(locks.record("a").await.unwrap(), None);
        handle.write_record("y").await.unwrap();
        guard.release().await.unwrap();
        assert_eq!(refused(handle.write_record("z").await), ErrorKind::Lost);
        let record = locks.record("a").await.unwrap().unwrap();
        assert_eq!((&*record.value, record.hold), (&b"y"[..], handle.hold_id()));
    }

    /// Both tasks have one owner at the server, which could not tell the late write of the first from one of
    /// the second.
    #[tokio::test]
    async fn a_lock_whose_record_was_written_is_not_passed_on() {
        let locks = Locks::in_memory().hand_off(10, Duration::from_secs(10));
        for writes in [false, true] {
            let first = locks.lock("a").await.unwrap();
            let owner = first.grant().claim().owner();
            let next = tokio::spawn(locks.lock("a").into_future());
            tokio::time::sleep(Duration::from_millis(50)).await;
            if writes {
                first.write_record("x").await.unwrap();
            }
            let late = first.grant().clone();
            first.release().await.unwrap();
            let next = next.await.unwrap().unwrap();
            assert_eq!(next.grant().claim().owner() == owner, !writes, "passed on");
            assert_eq!(late.bind().is_ok(), writes, "it has no successor of the same owner");
            next.release().await.unwrap();
        }
    }

    #[tokio::test]
    async fn writes_of_a_hold_follow_each_other() {
        let server = TestServer::new();
        let locks = server.locks().unwrap();
        let guard = locks.lock("a").ttl(Duration::from_secs(60)).await.unwrap();
        // The first write has no answer, and is dropped.
        server.delay(Operation::WriteRecord, Duration::from_secs(5));
        let first = guard.write_record("1");
        assert!(tokio::time::timeout(Duration::from_millis(20), first).await.is_err());
        server.heal();
        guard.write_record("2").await.unwrap();
        let late = RecordWrite { kind: RecordKind::Value, number: 1, value: b"1" };
        let answer = locks.backend().write_record(guard.grant(), late).await;
        assert_eq!(refused(answer), ErrorKind::Conflict, "a late copy of the first");
        assert_eq!(guard.read_record().await.unwrap().unwrap().value, b"2");
    }
}
