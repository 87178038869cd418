//! Waiting in a queue whose places the database numbers. A release notifies the waiter, which asks again, or
//! relies on what the release has granted to it, or reads that. The waiter gives its own heartbeats.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;
use lockwell_core::backend::{ClaimReply, KEEP_EVERY, Queue, Waiter, lock, wait_for_turn};
use lockwell_core::{Claim, FencingToken, Grant, Result, Wait};

use crate::client::Client;
use crate::client::requests::{JobContext, Kind, Route};
use crate::client::service::Answered;
use crate::dialect::tickets::{Entered, TicketQueue};
use crate::ids::AsUuid;
use crate::words::{Hold, LockRequest, NO_TICKET, TakeRequest, TryAcquire};

struct Tickets<D: TicketQueue>(Arc<Client<D>>);

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

pub(crate) fn acquire<D: TicketQueue>(
    client: Arc<Client<D>>,
    claim: &Claim,
) -> BoxFuture<'_, Result<Option<Grant>>> {
    Box::pin(async move {
        let queue = Tickets(client);
        let place = queue.enter_at_once(claim).await?;
        wait_for_turn(&queue, claim, place).await
    })
}

impl<D: TicketQueue> Tickets<D> {
    /// A place for a claim that will probably wait, since somebody waited for this lock a moment ago. The
    /// answer to the request for the place is that to the first request for the lock, too.
    async fn enter_at_once(&self, claim: &Claim) -> Result<Option<TicketPlace>> {
        let Self(client) = self;
        let may_wait = claim.wait() != Wait::No && !claim.is_wait_over();
        if !client.dialect.handed_on().is_hot(claim.name()) || !may_wait || !client.notifier.receives() {
            return Ok(None);
        }
        claim.note_queued();
        claim.within_wait(self.enter(claim)).await.map(Some)
    }
}

impl<D: TicketQueue> Queue for Tickets<D> {
    type Place = TicketPlace;

    async fn subscribe(&self) {
        self.0.notifier.ready().await;
    }

    async fn ask(&self, claim: &Claim, place: Option<&TicketPlace>) -> Result<ClaimReply> {
        let Some(TicketPlace { waiter, refused, announced, forget_place }) = place else {
            let took = self.0.ask(Route::Main, TakeRequest::new(claim, NO_TICKET)).await?;
            return self.0.answer(claim, took, None);
        };
        let refused = lock(refused).take();
        if let Some(refused) = refused {
            return self.0.answer(claim, refused, Some(KEEP_EVERY));
        }
        let before = lock(announced).take();
        let announced = waiter.announced().map(|granted| granted.token()).or(before);
        let request = TakeRequest { announced, ..TakeRequest::new(claim, waiter.ticket()) };
        let took = self.0.ask(Route::Main, request).await?;
        if let TryAcquire::HandedOver(..) = took.0 {
            // The release has deleted it.
            forget_place.store(false, Ordering::Relaxed);
        }
        self.0.answer(claim, took, Some(KEEP_EVERY))
    }

    async fn enter(&self, claim: &Claim) -> Result<TicketPlace> {
        let Self(client) = self;
        let enter = Enter(claim.clone(), client.notifier.receives());
        let (Entered { ticket, refused }, sent) = client.ask(Route::Main, enter).await?;
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
            client.look(|conn| client.dialect.accept(conn, claim, &granted)).flatten()
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
        Ok(self.0.ask(Route::Main, KeepPlace(place.waiter.ticket())).await?.0)
    }

    async fn leave(&self, claim: &Claim) -> Result<()> {
        self.0.leave(claim).await.map(drop)
    }

    /// Deletes the place. Until it is deleted, others ignore it, since its owner holds the lock.
    fn granted(&self, place: TicketPlace) {
        if place.forget_place.into_inner() {
            self.0.send(Route::Main, ForgetPlace(place.waiter.ticket()));
        }
    }
}

/// Takes a place at the end of the queue. It says whether a release may grant the lock to the claim.
struct Enter(Claim, bool);

impl<D: TicketQueue> Kind<D> for Enter {
    type Answer = Entered;

    async fn carry_out(on: JobContext<'_, D>, batch: &[&Self]) -> sqlx::Result<Vec<Entered>> {
        let client = on.waiters.client().as_uuid();
        let mut entered = Vec::with_capacity(batch.len());
        for Self(claim, receives) in batch {
            entered.push(on.dialect.enqueue(on.conn, claim, client, *receives).await?);
        }
        Ok(entered)
    }

    fn about(&self) -> Option<LockRequest<'_>> {
        Some(LockRequest::Enter(&self.0))
    }
}

/// Keeps the place with this ticket. The answer says whether it still exists.
struct KeepPlace(i64);

impl<D: TicketQueue> Kind<D> for KeepPlace {
    type Answer = bool;

    async fn carry_out(on: JobContext<'_, D>, batch: &[&Self]) -> sqlx::Result<Vec<bool>> {
        let tickets: Vec<_> = batch.iter().map(|one| one.0).collect();
        on.dialect.keep(on.conn, &tickets).await
    }
}

/// Deletes the place of a waiter that has its lock.
struct ForgetPlace(i64);

impl<D: TicketQueue> Kind<D> for ForgetPlace {
    type Answer = ();

    async fn carry_out(on: JobContext<'_, D>, batch: &[&Self]) -> sqlx::Result<Vec<()>> {
        let tickets: Vec<_> = batch.iter().map(|one| one.0).collect();
        on.dialect.forget_places(on.conn, &tickets).await?;
        Ok(vec![(); batch.len()])
    }

    fn urgency(&self) -> u8 {
        1
    }
}
