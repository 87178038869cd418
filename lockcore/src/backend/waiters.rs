//! The waiters of this process, for backends whose server notifies clients and not single waiters.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;

use super::heartbeats::Heartbeats;
use super::{Heartbeat, Notification, PushedGrant};
use crate::system::{lock, unique_bits, wake_tasks};
use crate::{LockName, Moment};

/// How long a place in a queue at a server is kept without a heartbeat from its waiter.
pub const PLACE_TTL: Duration = Duration::from_secs(4);
/// How many notifications for tickets that nobody has are kept. The answer with a ticket may be later than a
/// notification for it.
const EARLY: usize = 64;
/// The time between two heartbeats of a waiter.
pub const KEEP_EVERY: Duration = Duration::from_millis(1300);

/// The waiters of one client, by their tickets, so that a notification of the server reaches the right
/// waiter.
///
/// A heartbeat shows the server that a waiter is still alive. A backend sends heartbeats for each waiter
/// ([`Waiter::next_heartbeat`]) or, if the server can find all waiters of a client, one heartbeat for all of
/// them ([`next_heartbeat`](Self::next_heartbeat)).
#[derive(Debug)]
pub struct Waiters {
    client: u128,
    rows: Mutex<Rows>,
    /// Notified when a waiter registers, for [`arrival`](Self::arrival).
    arrived: Notify,
    /// Notified then as well, for [`another`](Self::another): all who wait at that moment.
    others: Notify,
}

#[derive(Debug, Default)]
struct Rows {
    by_ticket: BTreeMap<i64, (LockName, Arc<Inbox>)>,
    by_name: HashMap<LockName, usize>,
    /// The last notifications for tickets that nobody had.
    early: VecDeque<(i64, Option<PushedGrant>)>,
    heartbeats: Heartbeats,
}

/// The notifications for a waiter, and its heartbeats.
#[derive(Debug, Default)]
struct Inbox {
    notified: Notify,
    state: Mutex<InboxState>,
}

#[derive(Debug, Default)]
struct InboxState {
    /// For how many looks at it a notification has not been heard, and one more. 0: none is unheard. Below 0:
    /// for so many looks it is no sign that nobody polls the waiter.
    looks: i32,
    granted: Option<PushedGrant>,
    heartbeats: Heartbeats,
}

impl Inbox {
    /// Counts one more look. True: a notification without a grant was not heard for so many.
    fn is_unheard_for(&self, looks: i32) -> bool {
        let mut state = lock(&self.state);
        let is_over = state.looks > looks;
        state.looks = match state.looks {
            0 => 0,
            -1 => 1,
            _ if is_over => 0,
            before => before + 1,
        };
        is_over && state.granted.is_none()
    }

    fn begin_count(&self, from: i32) {
        let mut state = lock(&self.state);
        if state.looks == 0 {
            state.looks = from;
        }
    }

    fn notify(&self) {
        self.begin_count(1);
        wake_tasks(|| self.notified.notify_one());
    }
}

/// One waiter, from its registration until it is dropped.
#[derive(Debug)]
pub struct Waiter {
    waiters: Arc<Waiters>,
    ticket: i64,
    inbox: Arc<Inbox>,
}

impl Waiters {
    /// No waiters yet. The client gets a new random name.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            client: unique_bits(),
            rows: Mutex::default(),
            arrived: Notify::new(),
            others: Notify::new(),
        })
    }

    /// The name of this client at the server: random bits.
    pub fn client(&self) -> u128 {
        self.client
    }

    fn rows(&self) -> MutexGuard<'_, Rows> {
        lock(&self.rows)
    }

    /// Registers a waiter. The ticket is the number that the server, or the client itself, has given to its
    /// place.
    pub fn register(self: &Arc<Self>, name: &LockName, ticket: i64) -> Waiter {
        let inbox = Arc::<Inbox>::default();
        let replaced = {
            let mut rows = self.rows();
            let replaced = rows.by_ticket.insert(ticket, (name.clone(), Arc::clone(&inbox)));
            if let Some((old, _)) = &replaced {
                rows.forget(old);
            }
            *rows.by_name.entry(name.clone()).or_default() += 1;
            if let Some(at) = rows.early.iter().position(|(early, _)| *early == ticket) {
                lock(&inbox.state).granted = rows.early.remove(at).and_then(|(_, granted)| granted);
                // Nobody waits for it yet, so this wakes nobody.
                inbox.notify();
            }
            replaced
        };
        // A server that lost its queue may give a ticket again: the waiter that had it is to ask again.
        if let Some((_, old)) = replaced {
            old.notify();
        }
        self.arrived.notify_one();
        self.others.notify_waiters();
        Waiter { waiters: Arc::clone(self), ticket, inbox }
    }

    /// Notifies the waiter with this ticket. If it registers only later, it is notified then.
    pub fn notify(&self, ticket: i64) {
        self.deliver(Notification::to_recheck(ticket));
    }

    /// Delivers a notification to its waiter. If that registers only later, it is notified then.
    pub fn deliver(&self, notification: Notification) {
        if notification.is_to_all() {
            return self.notify_all();
        }
        // The mutex is free again: wakers of the application run in `notify`.
        let inbox = self.rows().deliver(notification.ticket, notification.granted);
        if let Some(inbox) = inbox {
            inbox.notify();
        }
    }

    /// Notifies all waiters, when notifications of the server may have been missed.
    pub fn notify_all(&self) {
        let all: Vec<_> = self.rows().by_ticket.values().map(|(_, inbox)| Arc::clone(inbox)).collect();
        for inbox in all {
            inbox.notify();
        }
    }

    /// The tickets of waiters that were notified before so many calls of this function, and have not heard it
    /// since: nobody polls their futures. Each of them is returned once for a notification.
    pub fn unheard(&self, calls: i32) -> Vec<i64> {
        let rows = self.rows();
        let unheard = rows.by_ticket.iter().filter(|(_, (_, inbox))| inbox.is_unheard_for(calls));
        unheard.map(|(ticket, _)| *ticket).collect()
    }

    /// Notes that it is the turn of the waiter with this ticket, as the server has told the client. It need not
    /// ask before so many calls of [`unheard`](Self::unheard).
    pub fn note_turn(&self, ticket: i64, calls: i32) {
        let rows = self.rows();
        if let Some((_, inbox)) = rows.by_ticket.get(&ticket) {
            inbox.begin_count(-calls);
        }
    }

    /// The number of the next heartbeat of the client for all its waiters. For repeated requests, see
    /// [`Waiter::next_heartbeat`].
    pub fn next_heartbeat(&self) -> u64 {
        self.rows().heartbeats.next()
    }

    /// Records a heartbeat of the client that the server has answered.
    pub fn note_heartbeat(&self, heartbeat: Heartbeat) {
        self.rows().heartbeats.note(heartbeat);
    }

    /// Resolves when a waiter registers; at once if a waiter has registered since the last call.
    pub async fn arrival(&self) {
        self.arrived.notified().await;
    }

    /// Whether a waiter of this client waits for this lock.
    pub fn waits_for(&self, name: &LockName) -> bool {
        self.rows().by_name.contains_key(name)
    }

    /// Resolves when there is a waiter beside those with these tickets. It takes nothing from those who wait
    /// for an [`arrival`](Self::arrival).
    pub async fn another(&self, tickets: &[i64]) {
        loop {
            let mut arrival = std::pin::pin!(self.others.notified());
            arrival.as_mut().enable();
            if self.rows().by_ticket.keys().any(|ticket| !tickets.contains(ticket)) {
                return;
            }
            arrival.await;
        }
    }

    /// The locks that waiters of this client wait for.
    pub fn names(&self) -> Vec<LockName> {
        self.rows().by_name.keys().cloned().collect()
    }

    /// Whether there are no waiters.
    pub fn is_empty(&self) -> bool {
        self.rows().by_ticket.is_empty()
    }
}

impl Waiter {
    /// The ticket: the number of its place.
    pub fn ticket(&self) -> i64 {
        self.ticket
    }

    /// Resolves when the waiter should request the lock again; at once if a notification came before the
    /// call.
    pub async fn notified(&self) {
        self.inbox.notified.notified().await;
        lock(&self.inbox.state).looks = 0;
    }

    /// Notes that the waiter asks the server, until the answer is dropped: meanwhile it need not hear
    /// notifications, for so many calls of [`Waiters::unheard`].
    pub fn asking(&self, calls: i32) -> impl Drop + Send {
        lock(&self.inbox.state).looks = -calls;
        Asking(Arc::clone(&self.inbox))
    }

    /// The number of the next heartbeat. A request that is repeated keeps its number. Do not
    /// [record](Self::note_heartbeat) its answer then, since the server may have received another copy last.
    pub fn next_heartbeat(&self) -> u64 {
        lock(&self.inbox.state).heartbeats.next()
    }

    /// Records a heartbeat that the server has answered with "wait".
    pub fn note_heartbeat(&self, heartbeat: Heartbeat) {
        lock(&self.inbox.state).heartbeats.note(heartbeat);
    }

    /// A grant that a release is said to have made for this waiter, without a check of its validity: for
    /// waiters that check it in another way, or read it at the server, before they rely on it. Each grant is
    /// returned once.
    pub fn announced(&self) -> Option<PushedGrant> {
        lock(&self.inbox.state).granted.take()
    }

    /// A grant that a release has made for this waiter, with the beginning and the end of its validity, if it
    /// is valid at `now`. Each grant is returned once. Without a grant, the waiter sends a request to the
    /// server.
    pub fn granted(&self, now: Moment) -> Option<(PushedGrant, Moment, Moment)> {
        let (granted, of_waiter) = {
            let mut state = lock(&self.inbox.state);
            let granted = state.granted.take()?;
            (granted, state.heartbeats.with(granted.seen()))
        };
        let heartbeat = of_waiter.or_else(|| self.waiters.rows().heartbeats.with(granted.seen()))?;
        let deadline = granted.deadline(Some(&heartbeat), now)?;
        Some((granted, heartbeat.sent(), deadline))
    }
}

struct Asking(Arc<Inbox>);

impl Drop for Asking {
    fn drop(&mut self) {
        lock(&self.0.state).looks = 0;
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut rows = self.waiters.rows();
        // Another may have the ticket by now.
        let is_ours = |(_, inbox): &(LockName, Arc<Inbox>)| Arc::ptr_eq(inbox, &self.inbox);
        if rows.by_ticket.get(&self.ticket).is_some_and(is_ours) {
            if let Some((name, _)) = rows.by_ticket.remove(&self.ticket) {
                rows.forget(&name);
            }
        }
    }
}

impl Rows {
    /// Delivers a notification. The answer is to be notified outside of the mutex.
    fn deliver(&mut self, ticket: i64, granted: Option<PushedGrant>) -> Option<Arc<Inbox>> {
        let Some((_, inbox)) = self.by_ticket.get(&ticket) else {
            self.early.truncate(EARLY - 1);
            self.early.push_front((ticket, granted));
            return None;
        };
        if granted.is_some() {
            lock(&inbox.state).granted = granted;
        }
        Some(Arc::clone(inbox))
    }

    /// This lock has one waiter less.
    fn forget(&mut self, name: &LockName) {
        let Some(count) = self.by_name.get_mut(name) else { return };
        *count -= 1;
        if *count == 0 {
            self.by_name.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::task::Context;

    use futures_util::FutureExt;

    use super::*;
    use crate::FencingToken;
    use crate::system::waker;

    #[test]
    fn a_waker_may_use_the_waiters() {
        let (waiters, name) = (Waiters::new(), LockName::new("a").unwrap());
        let waiter = waiters.register(&name, 1);
        let (say, said) = mpsc::channel();
        let asks = Arc::clone(&waiters);
        let waker = waker(move || say.send(asks.is_empty()).unwrap());
        let kinds: [fn(&Waiters); 2] = [|all| all.notify(1), Waiters::notify_all];
        for notify in kinds {
            let (mut notified, mut cx) = (Box::pin(waiter.notified()), Context::from_waker(&waker));
            assert!(notified.as_mut().poll(&mut cx).is_pending());
            // On a thread of its own: under the mutex, it would never end.
            let notifies = Arc::clone(&waiters);
            std::thread::spawn(move || notify(&notifies));
            let is_empty = said.recv_timeout(Duration::from_secs(20)).expect("the rows are not locked");
            assert!(!is_empty && notified.as_mut().poll(&mut cx).is_ready());
        }
    }

    #[tokio::test]
    async fn a_notification_before_the_wait_is_not_forgotten() {
        let waiters = Waiters::new();
        let name = LockName::new("a").unwrap();
        let (first, second) = (waiters.register(&name, 1), waiters.register(&name, 2));
        waiters.notify(1);
        first.notified().await;
        drop(first);
        assert!(waiters.waits_for(&name));
        waiters.another(&[1]).await;
        assert!(waiters.another(&[1, 2]).now_or_never().is_none());
        waiters.notify_all();
        second.notified().await;
        drop(second);
        assert!(waiters.is_empty() && !waiters.waits_for(&name) && waiters.names().is_empty());
    }

    #[tokio::test]
    async fn a_notification_before_the_registration_is_not_forgotten() {
        let waiters = Waiters::new();
        let name = LockName::new("a").unwrap();
        let granted = PushedGrant::new(FencingToken::new(7), Duration::from_secs(3), 5, 6);
        waiters.deliver(Notification::of_grant(1, granted));
        waiters.notify(2);
        let (first, second) = (waiters.register(&name, 1), waiters.register(&name, 2));
        first.notified().await;
        second.notified().await;
        assert_eq!((first.announced(), second.announced()), (Some(granted), None));
        // Each is delivered once, and old ones are forgotten.
        waiters.notify(3);
        for ticket in 10..10 + EARLY {
            waiters.notify(i64::try_from(ticket).unwrap());
        }
        drop(first);
        for ticket in [1, 3] {
            let late = waiters.register(&name, ticket);
            let waited = tokio::time::timeout(Duration::from_millis(10), late.notified()).await;
            assert!(waited.is_err(), "{ticket}");
        }
    }

    #[tokio::test]
    async fn who_does_not_hear_a_notification_is_found_after_some_looks() {
        let (waiters, name) = (Waiters::new(), LockName::new("a").unwrap());
        let (first, second) = (waiters.register(&name, 1), waiters.register(&name, 2));
        let looks = || [0, 1, 2].map(|_| waiters.unheard(1));
        assert_eq!(looks(), [[], [], []].map(|none: [i64; 0]| none.to_vec()));
        waiters.notify_all();
        second.notified().await;
        assert_eq!(looks(), [vec![], vec![1], vec![]]);
        // One that asks need not hear it so soon.
        let asking = first.asking(2);
        waiters.notify(1);
        assert_eq!(looks(), [const { Vec::<i64>::new() }; 3]);
        assert_eq!(looks(), [vec![1], vec![], vec![]]);
        drop(asking);
        waiters.note_turn(1, 2);
        assert_eq!((looks(), waiters.unheard(1)), ([vec![], vec![], vec![]], vec![1]));
        waiters.deliver(Notification::of_grant(
            1,
            PushedGrant::new(FencingToken::new(7), Duration::from_secs(3), 5, 6),
        ));
        assert_eq!(looks(), [const { Vec::<i64>::new() }; 3], "a grant ends by itself");
    }

    #[tokio::test]
    async fn a_ticket_that_is_given_again_belongs_to_the_last() {
        let waiters = Waiters::new();
        let name = LockName::new("a").unwrap();
        let (old, new) = (waiters.register(&name, 1), waiters.register(&name, 1));
        old.notified().await;
        drop(old);
        assert!(waiters.waits_for(&name));
        waiters.notify(1);
        new.notified().await;
        drop(new);
        assert!(waiters.is_empty() && !waiters.waits_for(&name));
    }
}
