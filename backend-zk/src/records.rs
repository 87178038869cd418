//! The records of locks: persistent nodes beside the folders of the locks.

use std::time::Duration;

use lockwell_core::backend::{Backoff, StoredRecord, unescape};
use lockwell_core::{Error, ErrorKind, Grant, LockName, Mode, Record, RecordKind, RecordWrite, Result};
use zookeeper_client::{self as zk, CheckWriteError, CreateMode};

use crate::client::ClientInner;
use crate::error::{ErrorClass, class_of, explain};
use crate::names::{lock_path, records_path};
use crate::queue::held::of_another_client;
use crate::queue::node::Node;

/// What became of a write.
enum Attempt {
    Done,
    /// The claim does not hold the lock alone.
    Lost,
    /// The folder of the records is missing.
    NoFolder,
    /// The record is not as it was read.
    Changed,
}

/// Writes a record, if the claim's node is there, and as the claim has made it: a downgrade has written to it.
/// The record is one that this session has read, perhaps an old one: then it is read again.
///
/// It is repeated until there is an answer. A write whose answer was lost is found by its number. A removed
/// record leaves a node with a number and no value, so that a late copy does not make it again.
pub(crate) async fn write(grant: &Grant, write: RecordWrite<'_>, base: &str) -> Result<()> {
    let node = grant.record::<Node>().ok_or_else(of_another_client)?;
    if grant.claim().mode() != Mode::Exclusive {
        return write.answer(grant, None);
    }
    let folder = records_path(base, write.kind);
    let path = lock_path(&folder, grant.claim().name());
    let (session, text) = (&node.session, StoredRecord::text(grant, &write));
    let mut pauses = Backoff::new(Duration::from_millis(4), Duration::from_secs(1));
    loop {
        let attempt = async {
            let (version, stored) = match session.client.get_data(&path).await {
                Ok((data, stat)) => (Some(stat.version), Some(data)),
                Err(zk::Error::NoNode) => (None, None),
                Err(error) => return Err(error),
            };
            match stored.map(|data| StoredRecord::parse(&data)).transpose() {
                Ok(Some(stored)) if !stored.is_before(grant, &write) => {
                    return Ok(Err(write.answer(grant, Some(stored.writer()))));
                }
                Ok(_) => (),
                Err(error) => return Ok(Err(Err(error))),
            }
            match self::attempt(node, &path, &text, version).await? {
                Attempt::NoFolder => {
                    let persistent = CreateMode::Persistent.with_acls(session.options.acls());
                    match session.client.create(&folder, b"", &persistent).await {
                        Ok(_) | Err(zk::Error::NodeExists) => Ok(Ok(Attempt::Changed)),
                        Err(error) => Err(error),
                    }
                }
                other => Ok(Ok(other)),
            }
        };
        match session.bounded(attempt).await {
            Ok(Ok(Attempt::Done)) => return Ok(()),
            Ok(Ok(Attempt::Lost)) => return write.answer(grant, None),
            Ok(Ok(Attempt::NoFolder | Attempt::Changed)) => (),
            Ok(Err(answer)) => return answer,
            Err(error) => match class_of(&error) {
                ErrorClass::SessionOver => return write.answer(grant, None),
                ErrorClass::Refused => return Err(explain(&error)),
                ErrorClass::Throttled | ErrorClass::Unknown => pauses.pause().await,
            },
        }
    }
}

async fn attempt(
    node: &Node,
    path: &str,
    text: &[u8],
    version: Option<i32>,
) -> std::result::Result<Attempt, zk::Error> {
    // The claim makes its node with version 0, and nothing writes to that of an exclusive lock but a downgrade.
    let mut writer = node.session.client.new_check_writer(&node.path, Some(0))?;
    if version.is_some() {
        writer.add_set_data(path, text, version)?;
    } else {
        let persistent = CreateMode::Persistent.with_acls(node.session.options.acls());
        writer.add_create(path, text, &persistent)?;
    }
    match writer.commit().await {
        Ok(_) => Ok(Attempt::Done),
        Err(CheckWriteError::CheckFailed { source: zk::Error::NoNode | zk::Error::BadVersion }) => {
            Ok(Attempt::Lost)
        }
        Err(CheckWriteError::OperationFailed { source: zk::Error::NoNode, .. }) if version.is_none() => {
            Ok(Attempt::NoFolder)
        }
        Err(CheckWriteError::OperationFailed {
            source: zk::Error::NoNode | zk::Error::NodeExists | zk::Error::BadVersion,
            ..
        }) => Ok(Attempt::Changed),
        Err(
            CheckWriteError::CheckFailed { source }
            | CheckWriteError::OperationFailed { source, .. }
            | CheckWriteError::RequestFailed { source },
        ) => Err(source),
    }
}

/// Reads a record. The session of a claim has the last write of the holder before: the server of the session
/// has the end of that one's node, which came later.
pub(crate) async fn read(
    inner: &ClientInner,
    name: &LockName,
    kind: RecordKind,
    under: Option<&Grant>,
) -> Result<Option<Record>> {
    let path = lock_path(&records_path(&inner.options.base, kind), name);
    let read = if let Some(grant) = under {
        let node = grant.record::<Node>().ok_or_else(of_another_client)?;
        node.session.bounded(node.session.client.get_data(&path)).await
    } else {
        let session = inner.pool.any().await?;
        session.now(|| session.client.get_data(&path)).await
    };
    match read {
        Ok((data, _)) => Ok(StoredRecord::parse(&data)?.record()),
        Err(zk::Error::NoNode) => Ok(None),
        Err(error) => Err(explain(&error)),
    }
}

/// The names of the locks that have a record, or had one.
pub(crate) async fn names(inner: &ClientInner, kind: RecordKind) -> Result<Vec<LockName>> {
    let session = inner.pool.any().await?;
    match session.list_now(&records_path(&inner.options.base, kind)).await {
        Ok(nodes) => Ok(nodes.iter().filter_map(|node| LockName::new(unescape(node)?).ok()).collect()),
        Err(zk::Error::NoNode) => Ok(Vec::new()),
        Err(error) => Err(explain(&error)),
    }
}

/// The error of a write without an answer.
pub(crate) fn unknown() -> Error {
    Error::new(
        ErrorKind::UnknownOutcome,
        "no answer: the record may have been written; the next write replaces it",
    )
}
