//! Holders whose grants the server has forgotten make their records again.
//!
//! In a grace period nothing is granted, so each holder whose lease is valid by its own clock still has its
//! lock, whatever the server knows of it. A renewal that finds no record therefore says nothing: the holder
//! *reclaims* the lock, by a call that names the server that was asked, the mode in which the lock is held
//! now, and the token. `reclaim.lua` says which records of others give way.
//!
//! A reclaim that finds the lock released would keep it taken until the lease ends. A renewal finds no record
//! either if the lock was released since it was sent, over the connection of another runtime. So a release
//! cancels the claim before it sends anything, and:
//!
//! * What was not sent by then is not sent any more.
//! * After the answer to what was sent, a claim that is cancelled is released again.
//! * A late copy puts the claim [in doubt](lockwell_core::Claim::note_in_doubt): it is released again
//!   and again, as after an acquire.

use std::sync::Arc;

use futures_util::future::join_all;
use lockwell_core::backend::valid_until;
use lockwell_core::{Error, ErrorKind, Grant, Moment, Renewal, Result};

use crate::calls::grace::Part;
use crate::calls::item::ItemReply;
use crate::server::client::Client;
use crate::server::replicas::time_to_confirm;
use crate::wire::Wire;
use crate::words::answers;
use crate::words::error::no_answer;

impl Client {
    /// Reclaims the locks of those that this server does not know, if it may have forgotten them.
    pub(super) async fn reclaim(
        &self,
        grants: &[&Grant],
        renewals: &mut [Renewal],
        from: (&Arc<Wire>, u64),
        until: Moment,
    ) {
        let is_lost = |renewal: &Renewal| matches!(renewal, Renewal::Lost);
        if !renewals.iter().any(is_lost) {
            return;
        }
        let reclaimed = async {
            let Some(first) = grants.first() else { return Ok(None) };
            // All are in one slot.
            let part = Part::Slot(self.slot(first.claim()));
            let Some(history) = self.forgetful(from, until, part).await? else { return Ok::<_, Error>(None) };
            let lost = grants.iter().zip(&*renewals).filter(|(_, renewal)| is_lost(renewal));
            // All are in the queue before the first is polled.
            let calls: Vec<_> = lost.map(|(grant, _)| self.reclaim_call(grant, &history, until)).collect();
            Ok(Some(join_all(calls).await))
        };
        let mut answers = match reclaimed.await {
            Ok(None) => return,
            Ok(Some(answers)) => answers.into_iter(),
            Err(error) => {
                let unknown = || Renewal::Unknown(error.duplicate());
                renewals.iter_mut().filter(|one| is_lost(one)).for_each(|one| *one = unknown());
                return;
            }
        };
        for renewal in renewals.iter_mut().filter(|one| is_lost(one)) {
            *renewal = answers.next().unwrap_or(Renewal::Lost);
        }
    }

    /// Reclaims a lock that the answer to another call does not know. Returns whether it is held again.
    pub(super) async fn reclaim_one(&self, grant: &Grant, answer: &ItemReply) -> Result<bool> {
        if self.common.gate.period().is_none() {
            return Ok(false);
        }
        let until = Moment::now().after(self.common.settings.options.timeout);
        let mut renewals = [Renewal::Lost];
        self.reclaim(&[grant], &mut renewals, (&answer.wire, answer.generation), until).await;
        let [renewal] = renewals;
        match renewal {
            Renewal::Renewed(_) => Ok(true),
            Renewal::Unknown(error) => Err(error),
            _ => Ok(false),
        }
    }

    /// The history of the server behind this connection if it may have forgotten grants.
    async fn forgetful(
        &self,
        (wire, generation): (&Arc<Wire>, u64),
        until: Moment,
        part: Part,
    ) -> Result<Option<Arc<str>>> {
        // A master that has become a replica answers as well, by the data of its new master.
        wire.doubt_identity(generation);
        let is_closed = self.closed(wire, until.remaining(), part).await?.is_some();
        match wire.identified(generation) {
            Some(known) => Ok(is_closed.then_some(known.identity.history)),
            // Another connection has taken its place since, perhaps to another server.
            None => Err(no_answer(None)),
        }
    }

    /// The call is in the queue when this returns.
    fn reclaim_call<'a>(
        &'a self,
        grant: &'a Grant,
        history: &str,
        until: Moment,
    ) -> impl Future<Output = Renewal> + use<'a> {
        let claim = grant.claim();
        let request = (!claim.is_cancelled()).then(|| self.requests().reclaim(grant, history));
        let call = request.map(|request| self.calls.call_within(request, until.remaining()));
        async move {
            // It was released.
            let Some(call) = call else { return Renewal::Lost };
            let reclaimed = async {
                let answer = call.await?;
                match answers::reclaimed(&answer.value)? {
                    Some(true) => (),
                    Some(false) => return Ok(Renewal::Lost),
                    None => {
                        let text = "the server has forgotten the lock, and cannot take it in again yet";
                        return Err(Error::new(ErrorKind::GracePeriod, text));
                    }
                }
                let limit = time_to_confirm(claim);
                self.confirm_once(&answer.wire, answer.generation, limit).await?;
                tracing::info!(lockwell.name = %claim.name(), "a lock that the server had forgotten was reclaimed");
                let since = self.counts_from(claim, (&answer.wire, answer.generation), answer.sent);
                Ok(Renewal::Renewed(valid_until(since, claim.ttl())))
            };
            let renewal = reclaimed.await.unwrap_or_else(Renewal::Unknown);
            // The release may have overtaken the call.
            if claim.is_cancelled() {
                // The other renewals wait for this one, and have their answers.
                let released =
                    tokio::time::timeout(until.remaining(), Box::pin(self.release_claim(claim, false)));
                if let Err(error) = released.await.unwrap_or_else(|_| Err(no_answer(None))) {
                    let error = format!("{error:#}");
                    tracing::debug!(lockwell.name = %claim.name(), error, "a released lock that was reclaimed ends with its lease");
                }
            }
            renewal
        }
    }
}
