//! The leases of claims.

use std::time::Duration;

use futures_util::future::{join_all, try_join};
use lockwell_core::{Claim, Error, ErrorKind, Moment, Released, Result};
use tonic::Status;

use crate::client::{Answer, ClientInner};
use crate::connection::Connection;
use crate::error::{exists, is_missing};
use crate::keys::{ClaimKey, lease, seconds};
use crate::messages::{Compare, Delete, LeaseReply, Op, Txn, exactly, one};

/// The lease of a key that belongs to none: it was copied from another cluster, since each claim has one.
const NO_LEASE: i64 = 0;

/// A pause before leases are renewed again because the leader changed meanwhile.
const LEADER_CHANGES: Duration = Duration::from_millis(30);

/// Leases that were extended.
pub(crate) struct Kept {
    /// When the requests were sent.
    pub(crate) sent: Moment,
    /// Whether each lease exists.
    pub(crate) there: Vec<bool>,
    pub(crate) answer: Answer,
    /// Whether the servers have lost revisions.
    pub(crate) forgot: bool,
}

/// Extends leases, and carries out a transaction at the same time, which proves that they were extended.
///
/// A keep-alive is answered by a server that acts as the leader. One that hangs in its disk answers
/// it, too, while another server has been elected, whose leases end without it. So the transaction, which
/// needs a majority, goes with it over the same connection. Say that both answers name the term T, which is
/// that of the last change that the member in between had applied.
///
/// * The leader of T or of a later term had the keep-alive, since the member knew the leader of T before it
///   passed the keep-alive on.
/// * The leader that a majority confirmed for the transaction, after both requests were sent, is of no later
///   term than T: the member applies the first change of a leader before it answers.
///
/// So each leader that did not have the keep-alive and comes later was elected after the requests were sent,
/// and a leader that is elected gives all leases their whole time again.
async fn renewed(connection: Connection, leases: &[i64], txn: Txn) -> Result<Kept, Status> {
    loop {
        let sent = Moment::now();
        let keep = async {
            let answers = join_all(leases.iter().map(|id| connection.keep_alive(*id))).await;
            answers.into_iter().collect::<Result<Vec<LeaseReply>, Status>>()
        };
        let (kept, answer) = try_join(keep, connection.txn(txn.clone())).await?;
        let answer = Answer::of(answer);
        let is_of_its_term = |reply: &LeaseReply| reply.header.unwrap_or_default().term == answer.term;
        if kept.iter().all(is_of_its_term) {
            let there = kept.iter().map(|reply| reply.ttl > 0).collect();
            return Ok(Kept { sent, there, answer, forgot: false });
        }
        tokio::time::sleep(LEADER_CHANGES).await;
    }
}

impl ClientInner {
    /// Makes the lease of a claim, which has its turn. Returns when the request was sent that it counts from at
    /// the earliest.
    pub(crate) async fn open_lease(&self, claim: &Claim) -> Result<Moment> {
        let (id, seconds) = (lease(claim), seconds(claim.ttl()));
        let grant = |connection: Connection, again| {
            if again {
                claim.note_in_doubt();
            }
            async move {
                let sent = Moment::now();
                match connection.grant_lease(id, seconds).await {
                    Ok(_) => Ok(Some(sent)),
                    // The claim is asked for again, or the first answer was lost.
                    Err(status) if exists(&status) => Ok(None),
                    Err(status) => Err(status),
                }
            }
        };
        match self.ask_now(self.soon(), grant).await? {
            Some(sent) => Ok(sent),
            None => self.keep_lease(claim).await?.ok_or_else(|| self.named(ended())),
        }
    }

    /// Extends the lease of a claim that is in no queue yet. `None`: there is no such lease.
    async fn keep_lease(&self, claim: &Claim) -> Result<Option<Moment>> {
        let reads = Txn::reads([one(&format!("{}/", self.options.prefix))]);
        let kept = self.keep(self.soon(), &[lease(claim)], &reads).await?;
        Ok(kept.there[0].then_some(kept.sent))
    }

    /// Extends leases, with a transaction that proves it.
    pub(crate) async fn keep(&self, until: Moment, leases: &[i64], txn: &Txn) -> Result<Kept> {
        let mark = self.floor.mark();
        let keep = |connection, _| renewed(connection, leases, txn.clone());
        let mut kept = self.ask_now(until, keep).await?;
        if !self.floor.note(mark, kept.answer.revision) {
            self.raise_floor(until).await?;
            kept.forgot = true;
        }
        Ok(kept)
    }

    /// Ends a lease, and with it its key.
    pub(crate) async fn revoke(&self, id: i64) -> Result<Released> {
        let _turn = self.turn(self.soon()).await?;
        self.revoke_now(id).await
    }

    /// Ends a lease for who has a turn.
    pub(crate) async fn revoke_now(&self, id: i64) -> Result<Released> {
        // If a repeated request finds nothing, its first copy may have ended the lease.
        let (revision, is_repeated) = self.revoke_counted(id).await?;
        Ok(Released::from_answer(revision.is_some(), is_repeated))
    }

    /// Ends the lease of a claim that goes on with a new one. That has the same id, so a copy of this request
    /// that may still arrive would end it.
    pub(crate) async fn revoke_for_another(&self, id: i64) -> Result<()> {
        let (_, is_repeated) = self.revoke_counted(id).await?;
        if is_repeated {
            let text =
                "an answer was lost, so the claim cannot go on: a request to end its lease may arrive late";
            return Err(self.named(Error::new(ErrorKind::Unreachable, text)));
        }
        Ok(())
    }

    /// The revision in which the lease ended, if it was there, and whether the request was repeated.
    pub(crate) async fn revoke_counted(&self, id: i64) -> Result<(Option<i64>, bool)> {
        let revoke = |connection: Connection, again| async move {
            match connection.revoke_lease(id).await {
                Ok(reply) => Ok((Some(reply.header.unwrap_or_default().revision), again)),
                Err(status) if is_missing(&status) => Ok((None, again)),
                Err(status) => Err(status),
            }
        };
        self.ask_now(self.soon(), revoke).await
    }

    /// Ends the lease of a claim. A key without a lease is deleted, unless it was made anew since the read, and
    /// so is one that no claim has: other keys may belong to its lease.
    pub(crate) async fn end(&self, entry: &ClaimKey) -> Result<Released> {
        if entry.is_ours && entry.lease != NO_LEASE {
            return self.revoke(entry.lease).await;
        }
        let key = exactly(&entry.key);
        let is_same = Compare::created_at(key.clone(), entry.create_revision);
        let delete = Op::Delete(Delete { key: entry.key.clone() });
        let txn = Txn::new([is_same], [delete], [Op::Range(key)]);
        let delete = |connection: Connection, again| {
            let txn = txn.clone();
            async move { Ok(Released::from_answer(connection.txn(txn).await?.succeeded, again)) }
        };
        self.ask(self.soon(), delete).await
    }

    /// How long a lease still has, for display; `None` if it is gone. Where there is none, nothing is left of
    /// it, and its key stays.
    pub(crate) async fn time_left(&self, id: i64) -> Result<Option<Duration>> {
        if id == NO_LEASE {
            return Ok(Some(Duration::ZERO));
        }
        let ask = |connection: Connection, _| async move { connection.time_to_live(id).await };
        let answer: LeaseReply = self.ask(self.soon(), ask).await?;
        Ok(u64::try_from(answer.ttl).ok().map(Duration::from_secs))
    }
}

pub(crate) fn ended() -> Error {
    Error::new(ErrorKind::Lost, "the lease ended before the lock was granted")
}
