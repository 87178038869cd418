//! Requests that are repeated on a new connection.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::{Backoff, PerRuntime};
use crate::system::lock;
use crate::{Clock, Error, ErrorKind, Moment, Result};

/// If a request had less than this part of `silence` to wait, its missing answer says nothing about the
/// connection. Renewals of short leases have more time than that, so a connection that hangs is replaced in
/// time for them.
const SHORT: u32 = 8;

/// Why a request has failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Failure {
    /// The server has refused it. The request is not repeated.
    Refused(Error),
    /// It is unknown whether the request was executed. It is repeated on a new connection.
    Doubtful(Error),
    /// The connection had ended before, so nothing was sent. The request is sent on a new connection.
    NotSent(Error),
    /// The server has too much to do, and has executed nothing. The request is sent again after a pause, on
    /// the same connection.
    Busy(Error),
}

/// The server's name is not resolved, so nothing was sent.
impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        let text = "the server cannot be reached";
        let unreachable = |error| Error::new(ErrorKind::Unreachable, text).with_source(error);
        Self::Doubtful(error.downcast::<Error>().unwrap_or_else(unreachable))
    }
}

/// One connection for each runtime. It is made when it is needed, and replaced when a request on it fails or
/// gets no answer.
///
/// For client crates whose clients are cheap to clone and can have many requests under way. The requests must
/// be idempotent: an acquire by its owner, a renewal, a release by its owner. For requests that should share
/// calls there is [`Batcher`](super::Batcher).
pub struct Reconnect<C> {
    connections: PerRuntime<ConnectionSlot<C>>,
    silence: Duration,
    clock: Clock,
}

/// The connection of a runtime.
struct ConnectionSlot<C>(Mutex<Present<C>>);

struct Present<C> {
    /// The number of connections before it.
    number: u64,
    connection: Option<C>,
    /// When callers stopped waiting for an answer that had too little time to say by themselves that the
    /// connection hangs: the first of them, and the last. Nobody has had an answer since.
    silent: Option<(Moment, Moment)>,
}

impl<C> Present<C> {
    fn none(number: u64) -> Self {
        Self { number, connection: None, silent: None }
    }
}

impl<C> ConnectionSlot<C> {
    /// Discards a connection, unless it was already replaced.
    fn discard(&self, number: u64) {
        let mut slot = lock(&self.0);
        if slot.number == number {
            *slot = Present::none(number + 1);
        }
    }

    /// Notes an answer on a connection.
    fn answered(&self, number: u64) {
        let mut slot = lock(&self.0);
        if slot.number == number {
            slot.silent = None;
        }
    }

    /// Notes that a request on a connection has had no answer by `now`. Returns for how long that has been so
    /// for all requests on it. What is further apart than `apart` says nothing about the time between.
    fn silent_for(&self, number: u64, now: Moment, apart: Duration) -> Duration {
        let mut slot = lock(&self.0);
        if slot.number != number {
            return Duration::ZERO;
        }
        let first = slot.silent.filter(|(_, last)| now.since(*last) < apart).map_or(now, |(first, _)| first);
        slot.silent = Some((first, now));
        now.since(first)
    }
}

impl<C: Clone + Send + Sync + 'static> Reconnect<C> {
    /// No connection yet. A request is repeated if it has no answer within `silence`, which includes the time
    /// to connect.
    ///
    /// A connection is replaced when a request on it has had no answer for `silence`. If the caller has less
    /// time than that, an eighth of `silence` is enough. Callers with still less time count together: the
    /// connection is replaced when none of them has had an answer for `silence`, nor anybody else.
    pub fn new(silence: Duration) -> Self {
        Self::with_clock(silence, Clock::system())
    }

    /// As [`new`](Self::new), with the clock that the times of its requests come from. A real server and its
    /// network need the system clock; another one is for a server in this process.
    pub fn with_clock(silence: Duration, clock: Clock) -> Self {
        Self { connections: PerRuntime::new(), silence, clock }
    }

    /// Repeats the request until it has an answer or the time is over; then it returns the last failure.
    ///
    /// The argument of `request` says whether an earlier copy of the request may have been executed. If so,
    /// an acquire calls [`Claim::note_in_doubt`](crate::Claim::note_in_doubt), and a release that finds
    /// nothing may have released the lock already.
    ///
    /// # Cancel safety
    /// The effect of dropping a request under way depends on the client crate.
    pub async fn ask<T, M, R>(
        &self,
        until: Moment,
        connect: impl Fn() -> M,
        request: impl Fn(C, bool) -> R,
    ) -> Result<T>
    where
        M: Future<Output = Result<C, Failure>>,
        R: Future<Output = Result<T, Failure>>,
    {
        self.send(until, true, connect, request).await
    }

    /// Sends a request that must not be repeated, and waits for its answer until the time is over.
    ///
    /// # Errors
    /// [`UnknownOutcome`](ErrorKind::UnknownOutcome) if it was sent and has no answer.
    ///
    /// # Cancel safety
    /// As [`ask`](Self::ask).
    pub async fn ask_once<T, M, R>(
        &self,
        until: Moment,
        connect: impl Fn() -> M,
        request: impl Fn(C) -> R,
    ) -> Result<T>
    where
        M: Future<Output = Result<C, Failure>>,
        R: Future<Output = Result<T, Failure>>,
    {
        self.send(until, false, connect, |connection, _| request(connection)).await
    }

    async fn send<T, M, R>(
        &self,
        until: Moment,
        is_repeated: bool,
        connect: impl Fn() -> M,
        request: impl Fn(C, bool) -> R,
    ) -> Result<T>
    where
        M: Future<Output = Result<C, Failure>>,
        R: Future<Output = Result<T, Failure>>,
    {
        let slot: Arc<ConnectionSlot<C>> =
            self.connections.get(|| ConnectionSlot(Mutex::new(Present::none(0))))?;
        let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(500));
        let clock = &self.clock;
        let mut again = false;
        let mut last: Option<Error> = None;
        loop {
            // On which connection, and when.
            let mut sent: Option<(u64, Moment)> = None;
            let attempt = async {
                let (number, present) = {
                    let slot = lock(&slot.0);
                    (slot.number, slot.connection.clone())
                };
                let connection = if let Some(connection) = present {
                    connection
                } else {
                    let new = Box::pin(connect()).await?;
                    // Several may have connected at a time: the first of them is for all.
                    let mut slot = lock(&slot.0);
                    if slot.number == number { slot.connection.get_or_insert(new).clone() } else { new }
                };
                sent = Some((number, clock.now()));
                // The futures of some clients are so large that a few of them, one in another, fill a
                // thread's stack.
                Box::pin(request(connection, again)).await
            };
            let began = clock.now();
            let end = if is_repeated { until.min(began.after(self.silence)) } else { until };
            let outcome = clock.timeout_at(end, attempt).await;
            if let (Some(Ok(_) | Err(Failure::Refused(_) | Failure::Busy(_))), Some((number, _))) =
                (&outcome, sent)
            {
                slot.answered(number);
            }
            let (error, is_broken, may_have_arrived) = match outcome {
                Some(Ok(answer)) => return Ok(answer),
                Some(Err(Failure::Refused(error))) => return Err(error),
                Some(Err(Failure::Doubtful(error))) => (error, true, true),
                Some(Err(Failure::NotSent(error))) => (error, true, false),
                Some(Err(Failure::Busy(error))) => (error, false, false),
                None => {
                    let now = clock.now();
                    // A caller with little time must not cost the others the connection that they share.
                    let hangs = sent.is_some_and(|(number, at)| {
                        now.since(at) >= self.silence / SHORT
                            || slot.silent_for(number, now, self.silence) >= self.silence
                    });
                    // If it was still connecting, the failure before says more.
                    let error = last.take().filter(|_| sent.is_none());
                    (error.unwrap_or_else(Error::silence), hangs, true)
                }
            };
            if let Some((number, _)) = sent {
                again |= may_have_arrived;
                if is_broken {
                    slot.discard(number);
                }
            }
            if again && !is_repeated {
                let text = "no answer: the request may or may not have been executed";
                return Err(Error::new(ErrorKind::UnknownOutcome, text).with_source(error));
            }
            let pause = backoff.next_pause();
            if until.since(clock.now()) <= pause {
                return Err(error);
            }
            last = Some(error);
            clock.sleep(pause).await;
        }
    }

    /// Removes the connections of all runtimes. Requests that are under way are not affected.
    pub fn close(&self) {
        drop(self.connections.take_all());
    }
}

impl<C> fmt::Debug for Reconnect<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reconnect").field("silence", &self.silence).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use super::*;
    use crate::TestClock;

    fn doubtful() -> Failure {
        Failure::Doubtful(Error::new(ErrorKind::Unreachable, "broken"))
    }

    fn busy() -> Failure {
        Failure::Busy(Error::new(ErrorKind::Unreachable, "too many requests"))
    }

    fn soon() -> Moment {
        Moment::now().after(Duration::from_secs(5))
    }

    #[tokio::test]
    async fn a_connection_serves_until_it_fails() {
        let made = AtomicU32::new(0);
        let reconnect = Reconnect::new(Duration::from_millis(50));
        let connect = || async { Ok(made.fetch_add(1, Ordering::SeqCst)) };
        for _ in 0..2 {
            let on =
                reconnect.ask(soon(), connect, |on, again| async move { Ok((on, again)) }).await.unwrap();
            assert_eq!(on, (0, false));
        }
        // It breaks; the next one does not answer.
        let request = |on, again| async move {
            match on {
                0 => Err(doubtful()),
                1 => std::future::pending().await,
                on => Ok((on, again)),
            }
        };
        assert_eq!(reconnect.ask(soon(), connect, request).await.unwrap(), (2, true));
        let refused = |_, _| async { Err::<(), _>(Failure::Refused(Error::new(ErrorKind::Refused, "no"))) };
        assert_eq!(reconnect.ask(soon(), connect, refused).await.unwrap_err().kind(), ErrorKind::Refused);
        assert_eq!(made.load(Ordering::SeqCst), 3, "an answer breaks no connection");
    }

    #[tokio::test]
    async fn nothing_was_sent_where_nothing_is_connected() {
        let reconnect = Reconnect::<u32>::new(Duration::from_millis(50));
        let tries = AtomicU32::new(0);
        let connect = || async {
            match tries.fetch_add(1, Ordering::SeqCst) {
                0 | 1 => Err(doubtful()),
                try_ => Ok(try_),
            }
        };
        let answer =
            reconnect.ask(soon(), connect, |on, again| async move { Ok((on, again)) }).await.unwrap();
        assert_eq!(answer, (2, false));
    }

    #[tokio::test]
    async fn a_request_that_was_not_sent_is_not_in_doubt() {
        let reconnect = Reconnect::new(Duration::from_secs(60));
        let made = AtomicU32::new(0);
        let connect = || async { Ok(made.fetch_add(1, Ordering::SeqCst)) };
        let request = async |on, again| match on {
            0 => Err(Failure::NotSent(Error::new(ErrorKind::Unreachable, "it has ended"))),
            on => Ok((on, again)),
        };
        assert_eq!(reconnect.ask(soon(), connect, request).await.unwrap(), (1, false));
    }

    #[tokio::test]
    async fn a_server_that_is_busy_keeps_its_connection_and_puts_nothing_in_doubt() {
        let reconnect = Reconnect::new(Duration::from_secs(60));
        let made = AtomicU32::new(0);
        let connect = || async { Ok(made.fetch_add(1, Ordering::SeqCst)) };
        let sent = AtomicU32::new(0);
        let request = async |on, again| match sent.fetch_add(1, Ordering::SeqCst) {
            0 | 1 => Err(busy()),
            _ => Ok((on, again)),
        };
        assert_eq!(reconnect.ask(soon(), connect, request).await.unwrap(), (0, false));
        let sent = AtomicU32::new(0);
        let once = async |on| match sent.fetch_add(1, Ordering::SeqCst) {
            0 | 1 => Err(busy()),
            _ => Ok(on),
        };
        assert_eq!(reconnect.ask_once(soon(), connect, once).await.unwrap(), 0);
        let never = async |_, _| Err::<(), _>(busy());
        let until = Moment::now().after(Duration::from_millis(300));
        assert_eq!(reconnect.ask(until, connect, never).await.unwrap_err().kind(), ErrorKind::Unreachable);
        assert_eq!(made.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn what_must_not_be_repeated_is_sent_once() {
        let reconnect = Reconnect::new(Duration::from_millis(50));
        let made = AtomicU32::new(0);
        let connect = || async { Ok(made.fetch_add(1, Ordering::SeqCst)) };
        let sent = AtomicU32::new(0);
        let request = async |on| {
            if on == 0 {
                return Err(Failure::NotSent(Error::new(ErrorKind::Unreachable, "it has ended")));
            }
            sent.fetch_add(1, Ordering::SeqCst);
            if on == 1 { Err::<(), _>(doubtful()) } else { std::future::pending().await }
        };
        for until in [soon(), Moment::now().after(Duration::from_millis(300))] {
            let error = reconnect.ask_once(until, connect, request).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnknownOutcome);
        }
        assert_eq!((made.load(Ordering::SeqCst), sent.load(Ordering::SeqCst)), (3, 2));
    }

    #[tokio::test]
    async fn a_caller_with_little_time_breaks_no_connection() {
        let made = AtomicU32::new(0);
        let reconnect = Reconnect::new(Duration::from_secs(8));
        let connect = || async { Ok(made.fetch_add(1, Ordering::SeqCst)) };
        let never = |_, _| std::future::pending::<Result<(), Failure>>();
        let answered = async |on, _| Ok::<u32, Failure>(on);
        for (time, connection) in [(50, 0), (1200, 1)] {
            let until = Moment::now().after(Duration::from_millis(time));
            reconnect.ask(until, connect, never).await.unwrap_err();
            assert_eq!(reconnect.ask(soon(), connect, answered).await.unwrap(), connection, "{time} ms");
        }
    }

    /// Twenty of them wait for as long as it takes until a connection counts as broken.
    #[tokio::test]
    async fn callers_with_little_time_replace_a_silent_connection_together() {
        const SHORT_TIME: Duration = Duration::from_millis(100);
        let (test, made, is_silent) = (TestClock::new(), AtomicU32::new(0), AtomicBool::new(true));
        let clock = test.clock();
        let reconnect = Reconnect::with_clock(SHORT_TIME * 20, test.clock());
        let connect = || async { Ok(made.fetch_add(1, Ordering::SeqCst)) };
        let request = |on: u32, _: bool| {
            let hangs = on == 0 && is_silent.load(Ordering::SeqCst);
            async move {
                if hangs {
                    std::future::pending::<()>().await;
                }
                Ok::<u32, Failure>(on)
            }
        };
        let call = async || {
            let asked = reconnect.ask(clock.now().after(SHORT_TIME), connect, request);
            tokio::join!(asked, async { test.advance(SHORT_TIME) }).0
        };
        // An answer in between shows that it is well.
        for _ in 0..3 {
            for _ in 0..15 {
                assert_eq!(call().await.unwrap_err().kind(), ErrorKind::Unreachable);
            }
            is_silent.store(false, Ordering::SeqCst);
            assert_eq!(call().await.unwrap(), 0);
            is_silent.store(true, Ordering::SeqCst);
        }
        let mut silent = 0;
        while call().await.is_err() {
            silent += 1;
            assert!(silent < 30, "it is never replaced");
        }
        assert!(silent > 20 && made.load(Ordering::SeqCst) == 2, "{silent} calls");
    }

    #[tokio::test]
    async fn the_last_failure_is_told_if_the_time_ends_while_connecting() {
        let reconnect = Reconnect::<()>::new(Duration::from_secs(60));
        let tries = AtomicU32::new(0);
        let connect = || async {
            if tries.fetch_add(1, Ordering::SeqCst) == 0 {
                return Err(doubtful());
            }
            std::future::pending().await
        };
        let until = Moment::now().after(Duration::from_millis(300));
        let error = reconnect.ask(until, connect, |(), _| async { Ok(()) }).await.unwrap_err();
        assert_eq!((error.message(), tries.load(Ordering::SeqCst)), ("broken", 2));
    }

    #[tokio::test]
    async fn the_end_of_the_time_is_the_end() {
        let reconnect = Reconnect::<()>::new(Duration::from_secs(60));
        let began = Moment::now();
        let until = began.after(Duration::from_millis(100));
        let never = |(), _| std::future::pending::<Result<(), Failure>>();
        let error = reconnect.ask(until, || async { Ok(()) }, never).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable);
        assert!(until.has_passed() && Moment::now().since(began) < Duration::from_secs(3));
    }
}
