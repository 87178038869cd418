//! One dial at a time in each runtime, for all who need a connection.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use lockwell_core::backend::{Backoff, Failure, PerRuntime, lock, unless_panics};
use lockwell_core::{Error, ErrorKind, Moment};
use tokio::sync::watch;

/// The first and the longest pause after a dial that has failed. The longest spares servers that elect a
/// leader, and delays nobody much when they have one.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(200));

/// Makes connections.
///
/// Thousands may need one when theirs has ended, and share a dial:
///
/// * Whoever asks may give up before it has ended, such as a renewal that is tried again soon. So it is a
///   task, and goes on. A connection that nobody has waited for is for the next one who asks.
/// * They share the pause after a dial that has failed, too. Each has pauses of its own, but many who ask one
///   after the other would dial without any.
pub(crate) struct Dials<C>(PerRuntime<Mutex<Latest<C>>>);

struct Latest<C> {
    /// The last dial, until somebody has its connection.
    dial: Option<Dial<C>>,
    pauses: Backoff,
}

/// `None` while it is under way; when it has ended, and how.
type Dial<C> = watch::Receiver<Option<(Moment, Result<C, Arc<Failure>>)>>;

/// How old a connection may be that nobody has waited for. An older one may have ended unnoticed.
const FRESH: Duration = Duration::from_secs(5);

impl<C: Clone + Send + Sync + 'static> Dials<C> {
    pub(crate) fn new() -> Self {
        Self(PerRuntime::new())
    }

    /// A new connection. `open` begins a dial, if none is under way.
    ///
    /// # Cancel safety
    /// Cancel safe: the dial goes on.
    pub(crate) async fn connect<F>(&self, open: impl FnOnce() -> F) -> Result<C, Failure>
    where
        F: Future<Output = Result<C, Failure>> + Send + 'static,
    {
        let latest = self.0.get(|| Mutex::new(Latest::new())).map_err(Failure::Refused)?;
        let mut dial = lock(&latest).dial(open);
        let dialed = unless_panics(dial.wait_for(Option::is_some)).await.ok().and_then(|it| it.clone());
        match dialed {
            Some((_, Ok(connection))) => {
                lock(&latest).take(&dial);
                Ok(connection)
            }
            Some((_, Err(failure))) => Err(again(&failure)),
            None => {
                let text = "the runtime ends that makes the connection";
                Err(Failure::Doubtful(Error::new(ErrorKind::Unreachable, text)))
            }
        }
    }

    /// Forgets all connections that nobody has waited for.
    pub(crate) fn close(&self) {
        drop(self.0.take_all());
    }
}

impl<C: Clone + Send + Sync + 'static> Latest<C> {
    fn new() -> Self {
        Self { dial: None, pauses: Backoff::new(PAUSES.0, PAUSES.1) }
    }

    /// The dial for one more who needs a connection.
    fn dial<F>(&mut self, open: impl FnOnce() -> F) -> Dial<C>
    where
        F: Future<Output = Result<C, Failure>> + Send + 'static,
    {
        let pause = match &self.dial {
            None => Duration::ZERO,
            Some(dial) => match &*dial.borrow() {
                None => return dial.clone(),
                Some((at, Ok(_))) if Moment::now().since(*at) < FRESH => return dial.clone(),
                Some((_, Ok(_))) => Duration::ZERO,
                Some((at, Err(_))) => self.pauses.next_pause().saturating_sub(Moment::now().since(*at)),
            },
        };
        let opening = open();
        let (tell, dial) = watch::channel(None);
        tokio::spawn(async move {
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            let opened = AssertUnwindSafe(opening).catch_unwind().await;
            let panicked =
                |_| Err(Failure::Doubtful(Error::new(ErrorKind::Internal, "connecting has panicked")));
            let opened = opened.unwrap_or_else(panicked);
            tell.send_replace(Some((Moment::now(), opened.map_err(Arc::new))));
        });
        self.dial.insert(dial).clone()
    }

    /// Somebody has the connection of this dial.
    fn take(&mut self, dial: &Dial<C>) {
        if self.dial.as_ref().is_some_and(|latest| latest.same_channel(dial)) {
            *self = Self::new();
        }
    }
}

/// A copy of the failure for one more that waited for the dial.
pub(crate) fn again(failure: &Failure) -> Failure {
    match failure {
        Failure::Refused(error) => Failure::Refused(error.duplicate()),
        Failure::NotSent(error) => Failure::NotSent(error.duplicate()),
        Failure::Doubtful(error) => Failure::Doubtful(error.duplicate()),
        Failure::Busy(error) => Failure::Busy(error.duplicate()),
        _ => Failure::Doubtful(Error::new(ErrorKind::Unreachable, "etcd cannot be reached")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use futures_util::future::join_all;
    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn a_dial_goes_on_without_those_who_asked() {
        let dials = Dials::new();
        let (begun, may_end, ended) = (AtomicU32::new(0), Arc::<Notify>::default(), Arc::<Notify>::default());
        let open = || {
            let number = begun.fetch_add(1, Ordering::SeqCst);
            let (may_end, ended) = (Arc::clone(&may_end), Arc::clone(&ended));
            async move {
                may_end.notified().await;
                ended.notify_one();
                Ok(number)
            }
        };
        assert!(dials.connect(open).now_or_never().is_none());
        assert!(dials.connect(open).now_or_never().is_none());
        may_end.notify_one();
        ended.notified().await;
        // Nobody has waited for it, so it is for the next one, and for nobody else.
        assert_eq!(dials.connect(open).await.unwrap(), 0);
        may_end.notify_one();
        let both = tokio::join!(dials.connect(open), dials.connect(open));
        assert_eq!((both.0.unwrap(), both.1.unwrap()), (1, 1));
        assert_eq!(begun.load(Ordering::SeqCst), 2);
    }

    /// Each of them asks again at once. Within a second there is time for a dozen dials, with the pauses that
    /// one of them would have.
    #[tokio::test]
    async fn those_whose_dials_fail_share_the_pauses() {
        let (dials, begun) = (Dials::new(), AtomicU32::new(0));
        let refused = || {
            begun.fetch_add(1, Ordering::SeqCst);
            async { Err(Failure::Refused(Error::new(ErrorKind::Refused, "a wrong password"))) }
        };
        let end = Moment::now().after(Duration::from_secs(1));
        let asking = || async {
            while !end.has_passed() {
                let failure = dials.connect(refused).await.unwrap_err();
                assert!(matches!(failure, Failure::Refused(error) if error.message() == "a wrong password"));
            }
        };
        join_all((0..100).map(|_| asking())).await;
        let dialled = begun.load(Ordering::SeqCst);
        assert!((2..20).contains(&dialled), "{dialled} dials");
        assert_eq!(dials.connect(|| async { Ok(7) }).await.unwrap(), 7);
    }

    #[tokio::test]
    async fn a_dial_that_panics_has_failed() {
        let (dials, begun) = (Dials::new(), AtomicU32::new(0));
        let open = || {
            let number = begun.fetch_add(1, Ordering::SeqCst);
            async move {
                assert!(number > 0, "as the test wants it");
                Ok(number)
            }
        };
        let failure = dials.connect(open).await.unwrap_err();
        assert!(matches!(failure, Failure::Doubtful(error) if error.kind() == ErrorKind::Internal));
        assert_eq!(dials.connect(open).await.unwrap(), 1);
    }
}
