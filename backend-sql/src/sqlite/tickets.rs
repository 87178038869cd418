//! Waiting in a queue whose places the database numbers. A release notifies the waiter, which asks again, or
//! relies on what the release has granted to it, or reads that. The waiter gives its own heartbeats.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;
use lockwell_core::backend::{ClaimReply, KEEP_EVERY, PLACE_TTL, Queue, Waiter, lock, wait_for_turn};
use lockwell_core::{Claim, FencingToken, Grant, Result};

use sqlx_core::row::Row;

use super::connection::Connection;
use super::driver::{Sqlite, json};
use super::take::LockState;
use super::wake::provisional;
use crate::client::Client;
use crate::client::service::Answered;
use crate::dialect::hints::Hint;
use crate::dialect::requests::{Answer, Request, Route, other_answer};
use crate::words::{Hold, NO_TICKET, TakeRequest, TryAcquire, micros};

struct Tickets(Arc<Client<Sqlite>>);

/// A place in the queue.
struct TicketPlace {
    waiter: Waiter,
    /// The refusal when the claim entered the queue. It is the answer to the first request with the place.
    refused: Mutex<Option<Answered<TryAcquire>>>,
    /// The token of a grant that was announced, and could not be relied on without a request.
    announced: Mutex<Option<FencingToken>>,
    /// Whether the place must be deleted when the lock is granted.
    forget_place: AtomicBool,
}

pub(super) fn acquire(client: Arc<Client<Sqlite>>, claim: &Claim) -> BoxFuture<'_, Result<Option<Grant>>> {
    Box::pin(async move { wait_for_turn(&Tickets(client), claim).await })
}

impl Queue for Tickets {
    type Place = TicketPlace;

    async fn subscribe(&self) {
        self.0.notifier.ready().await;
    }

    async fn ask(&self, claim: &Claim, place: Option<&TicketPlace>) -> Result<ClaimReply> {
        let Some(TicketPlace { waiter, refused, announced, forget_place }) = place else {
            let took = self.0.take(Route::Main, Request::Take(TakeRequest::new(claim, NO_TICKET))).await?;
            return self.0.answer(claim, took, None);
        };
        let refused = lock(refused).take();
        if let Some(refused) = refused {
            return self.0.answer(claim, refused, Some(KEEP_EVERY));
        }
        let before = lock(announced).take();
        let announced = waiter.announced().map(|granted| granted.token()).or(before);
        let request = TakeRequest { announced, ..TakeRequest::new(claim, waiter.ticket()) };
        let took = self.0.take(Route::Main, Request::Take(request)).await?;
        if let TryAcquire::HandedOver(..) = took.0 {
            // The release has deleted it.
            forget_place.store(false, Ordering::Relaxed);
        }
        self.0.answer(claim, took, Some(KEEP_EVERY))
    }

    fn is_contended(&self, claim: &Claim) -> bool {
        self.0.dialect.hints.has(Hint::HandedOn, claim.name()) && self.0.notifier.receives()
    }

    /// The answer is that to the first request for the lock, too.
    async fn enter(&self, claim: &Claim) -> Result<TicketPlace> {
        let Self(client) = self;
        let enter = Request::Enter(claim.clone(), client.notifier.receives());
        let (Answer::Entered(ticket, refused), sent) = client.ask(Route::Main, enter).await? else {
            return Err(other_answer());
        };
        Ok(TicketPlace {
            waiter: client.waiters.register(claim.name(), ticket),
            refused: Mutex::new(refused.map(|refused| (refused, sent))),
            announced: Mutex::default(),
            forget_place: AtomicBool::new(Hold::of(claim) == Hold::Alone),
        })
    }

    async fn notified(&self, place: &TicketPlace) {
        place.waiter.notified().await;
    }

    fn taken(&self, claim: &Claim, place: &TicketPlace) -> Option<Grant> {
        let (client, granted) = (&self.0, place.waiter.announced()?);
        let Some((sent, deadline)) =
            client.look(|conn| client.dialect.accepted(conn, claim, &granted)).flatten()
        else {
            *lock(&place.announced) = Some(granted.token());
            return None;
        };
        // The release has deleted it.
        place.forget_place.store(false, Ordering::Relaxed);
        claim.note_left_queue();
        Some(self.0.grant(claim, granted.token(), sent).provisional(deadline))
    }

    async fn keep(&self, _: &Claim, place: &TicketPlace) -> Result<bool> {
        match self.0.ask(Route::Main, Request::Keep(place.waiter.ticket())).await?.0 {
            Answer::Kept(kept) => Ok(kept),
            _ => Err(other_answer()),
        }
    }

    /// Deletes the place. Until it is deleted, others ignore it, since its owner holds the lock.
    fn granted(&self, place: TicketPlace) {
        if place.forget_place.into_inner() {
            self.0.send(Route::Main, Request::Forget(place.waiter.ticket()));
        }
    }
}

/// The requests about places.
impl Sqlite {
    /// Carries them out, as [`carry_out`](crate::client::batch::carry_out).
    pub(super) async fn places(
        &self,
        conn: &mut Connection,
        batch: &[Arc<Request<Self>>],
    ) -> sqlx_core::Result<Vec<Answer>> {
        let (mut answers, mut tickets) = (Vec::with_capacity(batch.len()), Vec::new());
        for request in batch {
            match &**request {
                Request::Enter(claim, receives) => {
                    let (ticket, refused) = self.enqueue(conn, claim, *receives).await?;
                    answers.push(Answer::Entered(ticket, refused));
                }
                Request::Keep(ticket) | Request::Forget(ticket) => tickets.push(*ticket),
                _ => (),
            }
        }
        match &*batch[0] {
            Request::Keep(_) => {
                let kept = self.keep(conn, &tickets).await?;
                answers = kept.into_iter().map(Answer::Kept).collect();
            }
            Request::Forget(_) => {
                self.forget_places(conn, &tickets).await?;
                answers = tickets.iter().map(|_| Answer::Done).collect();
            }
            _ => (),
        }
        Ok(answers)
    }

    /// Takes a place at the end of the queue, and then requests the lock, as far as reading can refuse it. A
    /// repeated request returns the same place. `receives`: whether notifications arrive at this process, so
    /// that a release may grant the lock to the claim. Returns what [`Answer::Entered`] has.
    pub(super) async fn enqueue(
        &self,
        conn: &mut Connection,
        claim: &Claim,
        receives: bool,
    ) -> sqlx_core::Result<(i64, Option<TryAcquire>)> {
        // A release does not sync what it grants.
        let may_be_granted = receives && !self.opening.durability.syncs_grants;
        let lease = may_be_granted.then(|| provisional(claim)).flatten();
        let client = conn.client();
        let enqueued = conn
            .write_several(&self.sql.enqueue, 2, |query| {
                self.asked(query, claim)
                    .bind(client)
                    .bind(micros(PLACE_TTL))
                    .bind(claim.label())
                    .bind(claim.mode().code())
                    .bind(lease)
            })
            .await?;
        let [state] = enqueued.rows.as_slice() else { return Err(sqlx_core::Error::RowNotFound) };
        // Without a place it has the lock, and asks for it next. All such claims of a client register under
        // one number, and only the last one would be notified; but nobody sends a message to that number. One
        // that is refused, since its provisional lease has ended, has no place to keep, and enters again.
        let ticket: Option<i64> = state.try_get(5)?;
        let request = TakeRequest::new(claim, ticket.unwrap_or(NO_TICKET));
        let state = LockState::from_row(state)?;
        self.hints.note(Hint::Waited, claim.name());
        // Members whose leases have ended are removed by a request for the lock.
        let refused = state.refused(&request).filter(|refused| *refused != TryAcquire::Stale);
        if refused.is_none() {
            self.hints.forget(Hint::HandedOn, claim.name());
        }
        Ok((request.ticket, refused))
    }

    /// Gives a heartbeat for the waiters with these tickets. Returns for each whether it still has its place.
    async fn keep(&self, conn: &mut Connection, tickets: &[i64]) -> sqlx_core::Result<Vec<bool>> {
        let asked = json(tickets)?;
        let kept =
            conn.write(&self.sql.keep_place, |query| query.bind(&asked).bind(micros(PLACE_TTL))).await?.rows;
        let kept: HashSet<i64> = kept.iter().map(|row| row.try_get(0)).collect::<sqlx_core::Result<_>>()?;
        Ok(tickets.iter().map(|ticket| kept.contains(ticket)).collect())
    }

    /// Deletes the places of waiters that have their locks.
    async fn forget_places(&self, conn: &mut Connection, tickets: &[i64]) -> sqlx_core::Result<()> {
        let tickets = json(tickets)?;
        conn.write(&self.sql.forget_place, |query| query.bind(&tickets)).await.map(|_| ())
    }
}
