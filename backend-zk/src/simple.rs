//! The naive lock, for comparison: one ephemeral node, and everybody who waits watches it.
//!
//! It excludes. But each release wakes all who wait, and all of them try at once; and whoever is quickest is next. The
//! lock is the node itself, so the queue recipe cannot use the same name by mistake: an ephemeral node has no children.

use std::sync::Arc;
use std::time::Duration;

use lockcore::{Claim, Error, ErrorKind, Grant, LockName, Mode, Moment, Released, Result, Wait};
use uuid::Uuid;
use zookeeper_client::{self as zk, CreateMode, EventType};

use crate::error::{Fate, explain, fate};
use crate::names::lock_path;
use crate::node::{Node, write_data};
use crate::patience::{session, within};
use crate::session::Session;
use crate::shared::Shared;

pub(crate) async fn acquire(shared: &Arc<Shared>, claim: &Claim) -> Result<Option<Grant>> {
    if claim.mode() != Mode::Exclusive {
        return Err(Error::new(ErrorKind::Unsupported, "the recipe `simple` has exclusive locks only"));
    }
    let owner = claim.owner().as_uuid();
    let path = lock_path(&shared.options.base, claim.name());
    let mut data = write_data(claim);
    data.extend_from_slice(mark(owner).as_bytes());
    loop {
        let session = session(shared, claim).await?;
        let options = CreateMode::Ephemeral.with_acls(shared.options.acls());
        let sent = Moment::now();
        let creating = session.bounded(session.client.create(&path, &data, &options));
        let error = match within(shared, claim, creating).await? {
            Ok((stat, _)) => {
                session.answered(sent);
                return Ok(granted(shared, claim, &session, &path, stat.czxid, sent));
            }
            Err(error) => error,
        };
        match fate(&error) {
            Fate::Refused if error == zk::Error::NodeExists => (),
            Fate::Refused => return Err(explain(&error)),
            Fate::SessionOver if claim.is_given_up() => return Err(explain(&error)),
            // A node that was made after all is met below.
            _ => tokio::time::sleep(Duration::from_millis(5)).await,
        }
        let sent = Moment::now();
        let looking = session.bounded(session.client.get_and_watch_data(&path));
        let (found, stat, news) = match within(shared, claim, looking).await? {
            Ok(found) => found,
            Err(error) if fate(&error) == Fate::Refused && error != zk::Error::NoNode => {
                return Err(explain(&error));
            }
            Err(_) => continue,
        };
        if stat.ephemeral_owner == 0 {
            let text = "the name is in use by another recipe; all users of a base must use the same";
            return Err(Error::new(ErrorKind::KindClash, text));
        }
        if found.ends_with(mark(owner).as_bytes()) {
            if stat.ephemeral_owner == session.id() {
                return Ok(granted(shared, claim, &session, &path, stat.czxid, sent));
            }
            // Asked for through another client, whose session keeps it.
            let token = lockcore::FencingToken::new(stat.czxid.cast_unsigned());
            return Ok(Some(Grant::new(claim, token, sent).with_deadline(sent)));
        }
        if claim.wait() == Wait::No {
            return Ok(None);
        }
        tokio::select! {
            event = news.changed() => {
                if event.event_type == EventType::Session && claim.is_given_up() {
                    return Ok(None);
                }
            }
            () = claim.given_up() => return Ok(None),
            () = tokio::time::sleep(Duration::from_secs(5)) => (),
        }
    }
}

fn granted(
    shared: &Arc<Shared>,
    claim: &Claim,
    session: &Arc<Session>,
    path: &str,
    czxid: i64,
    sent: Moment,
) -> Option<Grant> {
    let node = Node::new(session, claim.name(), path.to_owned(), (0, czxid), false);
    shared.table.insert(claim.owner().as_uuid(), &node);
    shared.grant(claim, &node, sent)
}

/// What tells the owner, at the end of the data.
fn mark(owner: Uuid) -> String {
    format!(" owner={}", owner.simple())
}

/// Deletes the node if it is this owner's.
///
/// The look and the deletion are two requests. On the session that made the node, nothing but an operator can come in
/// between: the server executes neither when the session is over, and before that the node is there. So when the session
/// is over the node is left to its end. Through another client, who knows neither session nor node, the node can expire
/// in between and be another's: the weakness of a lock that is one name, and one more reason for the queue.
pub(crate) async fn release_by_owner(
    shared: &Arc<Shared>,
    lock: &LockName,
    owner: Uuid,
    made_by: Option<&Arc<Session>>,
    ttl: Duration,
) -> Result<Released> {
    let path = lock_path(&shared.options.base, lock);
    let mut unsure = false;
    loop {
        let session = match made_by {
            Some(session) => Arc::clone(session),
            None => shared.pool.session(ttl).await?,
        };
        let (synced, read) = (session.client.sync(&path), session.client.get_data(&path));
        let error = match session.bounded(async { synced.await.and(read.await) }).await {
            Ok((data, _)) if !data.ends_with(mark(owner).as_bytes()) => break,
            Ok(_) => match session.bounded(session.client.delete(&path, None)).await {
                Ok(()) => {
                    unsure = true;
                    break;
                }
                Err(error) => {
                    unsure |= fate(&error) == Fate::Unknown;
                    error
                }
            },
            Err(error) => error,
        };
        match fate(&error) {
            Fate::Refused if error == zk::Error::NoNode => break,
            Fate::Refused => return Err(explain(&error)),
            Fate::SessionOver if made_by.is_some() => break,
            _ if made_by.is_some_and(|session| session.is_over()) => break,
            _ => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
    shared.table.remove(owner);
    Ok(if unsure { Released::Released } else { Released::NotHeld })
}
