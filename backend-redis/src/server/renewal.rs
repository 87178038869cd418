//! Extends leases: in few calls, or in a cluster in one for each slot.

use futures_util::future::join_all;
use lockwell_core::backend::valid_until;
use lockwell_core::{Error, ErrorKind, Grant, Moment, Renewal, Result};

use crate::calls::items;
use crate::server::client::Client;
use crate::words::answers;

impl Client {
    /// Extends leases, each of which is answered for by `until`.
    ///
    /// The calls for different slots share nothing: a node that hangs leaves its own leases unknown, and
    /// those on the others are extended. It waits for all answers, so a hung node delays them, but until
    /// `until` at most; a lease counts from the sending of its own call.
    pub(crate) async fn renew(&self, grants: &[Grant], until: Moment) -> Vec<Renewal> {
        let calls = items::renewal_calls(grants).map(|grants| self.renew_by_slot(grants, until));
        join_all(calls).await.into_iter().flatten().collect()
    }

    async fn renew_by_slot(&self, grants: &[Grant], until: Moment) -> Vec<Renewal> {
        let mut groups: Vec<(u16, Vec<usize>)> = Vec::new();
        for (place, grant) in grants.iter().enumerate() {
            let slot = self.common.keys.slot(grant.claim().name());
            match groups.iter_mut().find(|(one, _)| *one == slot) {
                Some((_, places)) => places.push(place),
                None => groups.push((slot, vec![place])),
            }
        }
        let calls = groups.iter().map(async |(slot, places)| {
            let group: Vec<_> = places.iter().map(|&place| &grants[place]).collect();
            self.renew_group(&group, *slot, until).await
        });
        let answers = join_all(calls).await;
        let mut sorted: Vec<_> =
            groups.into_iter().flat_map(|(_, places)| places).zip(answers.into_iter().flatten()).collect();
        sorted.sort_by_key(|(place, _)| *place);
        sorted.into_iter().map(|(_, renewal)| renewal).collect()
    }

    /// Extends leases of one slot: in one call, or each by itself while the slot is being moved. The one key
    /// of an exclusive lock is at one node at any time, though the keys of two locks may not be.
    async fn renew_group(&self, group: &[&Grant], slot: u16, until: Moment) -> Vec<Renewal> {
        let route = self.calls.route();
        if group.len() > 1 && !route.is_moving(slot) {
            match self.renew_together(group, slot, until).await {
                Ok(renewals) => return renewals,
                Err(error) if !route.is_moving(slot) => return Renewal::all_unknown(group, &error),
                Err(_) => (),
            }
        }
        let apart = group.iter().map(async |grant| {
            let renewed = self.renew_together(&[*grant], slot, until).await;
            renewed.map_or_else(|error| Some(Renewal::Unknown(error)), |mut one| one.pop())
        });
        join_all(apart).await.into_iter().flatten().collect()
    }

    async fn renew_together(&self, grants: &[&Grant], slot: u16, until: Moment) -> Result<Vec<Renewal>> {
        let leases = grants.iter().map(|grant| (grant.claim(), String::new()));
        let item = items::renewal(&self.common.keys, leases, slot);
        let answer = self.calls.call_within(item, until.remaining()).await?;
        let confirming = self.confirm_once(&answer.wire, answer.generation, until.remaining());
        let unknown = |_| Error::new(ErrorKind::Unreachable, "the replicas have not answered in time");
        tokio::time::timeout(until.remaining(), confirming).await.map_err(unknown)??;
        let values = match answer.value {
            redis::Value::Array(values) => values,
            one => vec![one],
        };
        let pairs = grants.iter().zip(&values);
        let from = (&*answer.wire, answer.generation);
        let renewals = pairs.map(|(grant, value)| {
            Ok(if answers::extended(value)? {
                let since = self.counts_from(grant.claim(), from, answer.sent);
                Renewal::Renewed(valid_until(since, grant.claim().ttl()))
            } else {
                Renewal::Lost
            })
        });
        let mut renewals = renewals.collect::<Result<Vec<_>>>()?;
        if self.common.gate.period().is_some() {
            let from = (&answer.wire, answer.generation);
            Box::pin(self.reclaim(grants, &mut renewals, from, until)).await;
        }
        Ok(renewals)
    }
}
