//! What a holder has in hand.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::client::Shared;
use crate::holding::Holding;
use crate::keeper::{Armed, Outcome};
use crate::lease::{Event, Left, Limits};
use crate::local::Pass;
use crate::{
    Claim, Error, ErrorKind, FencingToken, Grant, LockName, Loss, Mode, Moment, Operation, Released, Result,
    Standing,
};

/// A held lock. Dropping it gives the lock up.
///
/// While the guard lives, the keeper thread renews the lease. If it cannot, the guard tells: [`standing`] turns
/// `Suspect` and then `Lost`, [`is_held`] turns false at the deadline, [`lost`] resolves. After that another process
/// may hold the lock: stop, and let the resource refuse you by the [`token`].
///
/// # What drop does, and what it does not promise
///
/// Dropping the guard starts a release in the background and returns at once. On a live runtime the lock is normally
/// free within a round trip. Nobody is told if the release fails; the keeper tries again, and at worst the lock ends
/// with its lease, since nothing renews it any more. A guard that is forgotten ([`std::mem::forget`]) is renewed for
/// as long as the process lives. To know that the lock is free, call [`release`] and look at the answer.
///
/// [`standing`]: Self::standing
/// [`is_held`]: Self::is_held
/// [`lost`]: Self::lost
/// [`token`]: Self::token
/// [`release`]: Self::release
#[must_use = "if unused the lock is released immediately"]
#[clippy::has_significant_drop]
pub struct LockGuard {
    held: Held,
    /// Taken when the lock is given up.
    shared: Option<Arc<Shared>>,
    /// Where the lock can be passed on within this process.
    pass: Option<Pass>,
}

impl LockGuard {
    pub(crate) fn new(shared: &Arc<Shared>, grant: Grant, limits: Limits, pass: Option<Pass>) -> Self {
        let right = pass.as_ref().map(|pass| Arc::clone(&pass.right));
        let holding = Arc::new(Holding::new(grant, limits, right));
        shared.ward.admit(&holding);
        Self { held: Held { holding }, shared: Some(Arc::clone(shared)), pass }
    }

    /// The lock's name.
    pub fn name(&self) -> &LockName {
        self.held.name()
    }

    /// How the lock is held.
    pub fn mode(&self) -> Mode {
        self.held.grant().claim().mode()
    }

    /// The fencing token: higher than that of every earlier holder of this name.
    pub fn token(&self) -> FencingToken {
        self.held.token()
    }

    /// Whether the lock is held now, by the clock. It costs a look at the clock and no I/O.
    ///
    /// True is a belief that was right when the clock was read; a pause may follow. What must never be written by a
    /// stale holder is to be guarded by the [`token`](Self::token) at the resource.
    pub fn is_held(&self) -> bool {
        self.held.is_held()
    }

    /// How sure the holder can be now.
    pub fn standing(&self) -> Standing {
        self.held.standing()
    }

    /// The time left until the lease ends, unless it is renewed. Zero once the lock is lost.
    pub fn time_left(&self) -> Duration {
        self.held.time_left()
    }

    /// Resolves when the lock is lost: at the deadline at the latest, even if no answer ever comes from the server.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost.
    pub async fn lost(&self) -> Loss {
        self.held.lost().await
    }

    /// Reports progress: see [`LockRequest::progress`](crate::LockRequest::progress). It costs no I/O.
    pub fn progress(&self) {
        self.held.progress();
    }

    /// A view of the lock that can be cloned and handed to tasks. It does not keep the lock.
    pub fn held(&self) -> Held {
        self.held.clone()
    }

    /// What the backend granted: for helpers that check the lock at the resource.
    pub fn grant(&self) -> &Grant {
        self.held.grant()
    }

    /// Turns a writer into a reader without a gap: no other writer comes in between, and readers who wait at the head
    /// of the queue come in. The token stays. Reports of progress and the longest hold begin anew.
    ///
    /// A reader stays what it is. The other way, from reader to writer, does not exist: two readers who both wait for
    /// the other to leave would wait for ever. Release, take the lock as a writer, and look at the data again.
    ///
    /// Views of the writer's lock ([`held`](Self::held)) end; take new ones. After any error the lock is given up.
    ///
    /// # Cancel safety
    /// When this future is dropped, the lock is given up in the background.
    pub async fn downgrade(mut self) -> Result<Self> {
        if self.mode() == Mode::Shared {
            return Ok(self);
        }
        let (grant, limits) = (self.grant().clone(), self.held.holding.limits());
        let Some((armed, left)) = self.end() else {
            unreachable!("a guard that is not given up has its client")
        };
        let armed = armed.then(self.pass.take().map(|pass| pass.right));
        let shared = Arc::clone(armed.shared());
        let refused = if self.mode() != Mode::Exclusive {
            Err(Error::new(ErrorKind::InvalidInput, "only a writer can become a reader, this is a permit"))
        } else if shared.capabilities.downgrade {
            left.ok_or_else(|| Error::new(ErrorKind::Lost, "the lock was lost before the downgrade"))
        } else {
            Err(Error::new(ErrorKind::Unsupported, "this backend cannot turn a writer into a reader"))
        };
        let answer = match refused {
            Ok(left) => crate::operation::downgrade(armed, grant, limits, left.until).await,
            Err(error) => {
                give_up(armed, left);
                Err(error)
            }
        };
        answer.map_err(|error| shared.decorate(error, Operation::Downgrade, Some(self.name())))
    }

    /// Gives the lock up and waits for the server's answer.
    ///
    /// An error of kind [`Lost`](ErrorKind::Lost) says that the lock was not held any more: what was done under it
    /// may have overlapped with another holder. Any other error says that the answer is missing; the keeper goes on
    /// trying in the background, and the lease is not renewed.
    ///
    /// # Cancel safety
    /// The release goes on in the background when this future is dropped; only the answer is lost.
    pub async fn release(mut self) -> Result<()> {
        let Some((armed, left)) = self.end_or_pass_on() else { return Ok(()) };
        let backend = armed.shared().capabilities.backend;
        let lost = || Error::new(ErrorKind::Lost, "the lock was lost before it was released");
        let error = if left.is_none() && !armed.claim().rest().is_zero() {
            give_up(armed, left);
            lost()
        } else {
            match crate::operation::release(armed).await {
                Ok(Released::Released) => return Ok(()),
                Ok(Released::NotHeld) => lost(),
                Err(error) => error,
            }
        };
        Err(error.during(Operation::Release).on_backend(backend).for_lock(self.name()))
    }

    /// Runs `work` while the lock is held, and releases it. All errors are of kind [`Lost`](ErrorKind::Lost): the work
    /// was dropped, or was not done under the lock to its end.
    pub(crate) async fn run<F, W, T>(self, shared: &Shared, work: F) -> Result<T>
    where
        F: FnOnce(Held) -> W,
        W: Future<Output = T>,
    {
        let held = self.held();
        let lost = || {
            let error = Error::new(ErrorKind::Lost, "the lock was lost while the work was going on");
            shared.decorate(error, Operation::Acquire, Some(held.name()))
        };
        let value = tokio::select! {
            // Finished work counts even if the loss is noticed in the same moment: the deadline decides below.
            biased;
            value = work(held.clone()) => value,
            _ = held.lost() => return Err(lost()),
        };
        if !held.is_held() {
            return Err(lost());
        }
        match self.release().await {
            Err(error) if error.kind() == ErrorKind::Lost => Err(error),
            // The work was done under the lock. What became of the release is the keeper's business.
            _ => Ok(value),
        }
    }

    /// Sets limits that count from now.
    pub(crate) fn limit(&self, limits: Limits) {
        if let (Some(shared), true) = (&self.shared, limits != Limits::default()) {
            self.held.holding.limit(limits);
            shared.ward.look();
        }
    }

    /// Ends the hold: by passing the lock on to a task of this process that waits for it, or with a claim that is to be
    /// given up.
    fn end_or_pass_on(&mut self) -> Option<(Armed, Option<Left>)> {
        let (armed, left) = self.end()?;
        let Some(pass) = self.pass.take() else { return Some((armed, left)) };
        let armed = match left {
            Some(left) if left.fresh => pass.on(self.grant(), left.until, armed)?,
            _ => armed,
        };
        Some((armed.then(Some(pass.right)), left))
    }

    /// Stops the renewals, and arms the clean-up in their place. Says what is left of the lease; nothing if it was lost.
    fn end(&mut self) -> Option<(Armed, Option<Left>)> {
        let shared = self.shared.take()?;
        let holding = &self.held.holding;
        let left = holding.give_up(Moment::now());
        shared.ward.dismiss(holding);
        Some((Armed::new(shared, holding.grant().claim().clone()), left))
    }
}

/// Gives a claim up of whose lease so much was left.
fn give_up(armed: Armed, left: Option<Left>) {
    match left {
        Some(_) => armed.give_up(Outcome::Answered),
        None => armed.give_up_lost(Outcome::Answered),
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard")
            .field("name", self.name())
            .field("token", &self.token())
            .field("standing", &self.standing())
            .finish_non_exhaustive()
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        if let Some((armed, left)) = self.end_or_pass_on() {
            give_up(armed, left);
        }
    }
}

/// A view of a held lock: it tells, but does not keep. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Held {
    holding: Arc<Holding>,
}

impl Held {
    /// The lock's name.
    pub fn name(&self) -> &LockName {
        self.grant().claim().name()
    }

    /// The fencing token.
    pub fn token(&self) -> FencingToken {
        self.grant().token()
    }

    /// Whether the lock is held now, by the clock. See [`LockGuard::is_held`].
    pub fn is_held(&self) -> bool {
        !self.holding.believed_until().has_passed()
    }

    /// How sure the holder can be now.
    pub fn standing(&self) -> Standing {
        self.holding.standing()
    }

    /// The time left until the lease ends, unless it is renewed.
    pub fn time_left(&self) -> Duration {
        self.holding.believed_until().remaining()
    }

    /// Reports progress: see [`LockRequest::progress`](crate::LockRequest::progress). It costs no I/O.
    pub fn progress(&self) {
        self.holding.on(Moment::now(), Event::Progress);
    }

    /// Resolves when the lock is lost. Pending for ever if it is given up instead.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost.
    pub async fn lost(&self) -> Loss {
        match self.holding.ended().await {
            Standing::Lost(loss) => loss,
            _ => std::future::pending().await,
        }
    }

    /// What the backend granted: for helpers that check the lock at the resource.
    pub fn grant(&self) -> &Grant {
        self.holding.grant()
    }

    /// The claim behind the lock.
    pub fn claim(&self) -> &Claim {
        self.grant().claim()
    }
}
