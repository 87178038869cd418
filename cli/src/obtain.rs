//! Obtains the locks for a command, and explains a failure.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::time::Duration;

use lockwell::{Error, ErrorKind, LockName, LockRequest, LockStatus, Locks, Mode, Result};
use tokio::time::{Instant, sleep, timeout};

use crate::exit::Failure;
use crate::hold::Hold;
use crate::patience::{Patience, may_pass};
use crate::say::{Voice, rounded};

/// How long to ask who holds a lock that was not obtained.
const INSPECT_LIMIT: Duration = Duration::from_secs(2);

/// How long a wait lasts before it is reported.
const REPORT_WAIT_AFTER: Duration = Duration::from_millis(300);

/// How long to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitLimit {
    No,
    For(Duration),
    /// As the configuration says, and without a limit if it says nothing.
    Usual,
    Forever,
}

impl WaitLimit {
    pub(crate) fn new(no_wait: bool, wait: Option<Duration>) -> Self {
        match wait {
            _ if no_wait => Self::No,
            // One complete try, whatever the clock says meanwhile.
            Some(Duration::ZERO) => Self::No,
            Some(wait) => Self::For(wait),
            None => Self::Usual,
        }
    }

    /// The time, if it is bounded by the command line.
    pub(crate) fn limit(self) -> Option<Duration> {
        match self {
            Self::No => Some(Duration::ZERO),
            Self::For(wait) => Some(wait),
            Self::Usual | Self::Forever => None,
        }
    }
}

/// What ends a hold although nothing failed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limits {
    /// The longest hold.
    pub(crate) max_hold: Option<Duration>,
    /// The longest time without a report of progress.
    pub(crate) progress: Option<Duration>,
}

/// The locks to obtain.
pub(crate) struct ObtainRequest<'a> {
    pub(crate) names: &'a [LockName],
    pub(crate) mode: Mode,
    pub(crate) wait_limit: WaitLimit,
    /// The lock delay: how long after a crash the lock is not granted.
    pub(crate) lock_delay: Option<Duration>,
    pub(crate) ttl: Option<Duration>,
    pub(crate) limits: Limits,
    pub(crate) voice: Voice,
}

impl ObtainRequest<'_> {
    /// Obtains the locks. A server that is away is tried again until the wait ends.
    pub(crate) async fn obtain(&self, locks: &Locks, patience: &mut Patience) -> Result<Hold, Failure> {
        loop {
            match self.obtain_once(locks, patience.left()).await {
                Ok(hold) => return Ok(hold),
                Err(error) if may_pass(&error) => patience.after(error).await?,
                Err(error) => return Err(explain(error, self.names, self.wait_limit, locks).await),
            }
        }
    }

    /// Obtains the locks, or says why not. `left`: what is left of the wait.
    pub(crate) async fn obtain_once(&self, locks: &Locks, left: Option<Duration>) -> Result<Hold> {
        let voice = self.voice;
        let began = Instant::now();
        let hold = tokio::select! {
            biased;
            hold = self.ask(locks, left) => hold?,
            never = self.report_holders(locks, voice) => match never {},
        };
        let tokens: Vec<_> =
            hold.tokens().map(|(token, name)| format!("{name:?} with token {token}")).collect();
        voice.tell(&format!("got {} after {}", tokens.join(", "), rounded(began.elapsed())));
        Ok(hold)
    }

    async fn ask(&self, locks: &Locks, left: Option<Duration>) -> Result<Hold> {
        let now = self.wait_limit == WaitLimit::No;
        let granted = if let [name] = self.names {
            let request = self.chosen(
                match self.mode {
                    Mode::Shared => locks.read(name),
                    Mode::Permit { limit } => locks.permit(name, limit.get()),
                    _ => locks.lock(name),
                },
                left,
            );
            if now { request.try_now().await?.map(Hold::One) } else { Some(Hold::One(request.await?)) }
        } else {
            let request = self.chosen(locks.lock_all(self.names), left);
            if now { request.try_now().await?.map(Hold::All) } else { Some(Hold::All(request.await?)) }
        };
        granted.ok_or_else(|| {
            Error::new(ErrorKind::Held, "")
                .for_lock(&self.names[0])
                .on_backend(locks.capabilities().backend())
        })
    }

    fn chosen<W>(&self, mut request: LockRequest<W>, left: Option<Duration>) -> LockRequest<W> {
        if let Some(ttl) = self.ttl {
            request = request.ttl(ttl);
        }
        if let Some(longest) = self.limits.max_hold {
            request = request.max_hold(longest);
        }
        if let Some(at_least_every) = self.limits.progress {
            request = request.progress_within(at_least_every);
        }
        if let Some(delay) = self.lock_delay {
            request = request.lock_delay(delay);
        }
        // The command says that it tries again.
        request = request.patience(Duration::ZERO);
        match (self.wait_limit, left) {
            (WaitLimit::Forever, _) => request.wait_forever(),
            (WaitLimit::No, _) | (WaitLimit::Usual, None) => request,
            (WaitLimit::For(_) | WaitLimit::Usual, Some(left)) => request.wait(left),
            (WaitLimit::For(wait), None) => request.wait(wait),
        }
    }

    async fn report_holders(&self, locks: &Locks, voice: Voice) -> Infallible {
        if voice == Voice::Verbose {
            sleep(REPORT_WAIT_AFTER).await;
            let who = who_holds(locks, self.names, true).await;
            let names: Vec<_> = self.names.iter().map(|name| format!("{name:?}")).collect();
            let who = who.filter(|who| !who.is_empty()).map_or_else(String::new, |who| format!(": {who}"));
            voice.tell(&format!("waiting for {}{who}", names.join(", ")));
        }
        std::future::pending().await
    }
}

/// The message for locks that were not obtained, with their holders.
pub(crate) async fn explain(
    error: Error,
    names: &[LockName],
    wait_limit: WaitLimit,
    locks: &Locks,
) -> Failure {
    if !matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::Held) {
        return error.into();
    }
    let mut text = match who_holds(locks, names, wait_limit != WaitLimit::No).await {
        Some(text) if !text.is_empty() => text,
        seen => {
            let mut failure = Failure::from(error);
            if seen.is_some() {
                failure.message += "; nobody holds it now";
            } else {
                failure.message += "; and the lock server does not answer now: it is unreachable";
                failure.status = crate::exit::UNREACHABLE;
            }
            return failure;
        }
    };
    match wait_limit {
        WaitLimit::For(wait) => drop(write!(text, "; not obtained within {}", rounded(wait))),
        WaitLimit::No => text += "; not waited for",
        WaitLimit::Usual | WaitLimit::Forever => text += "; not obtained in time",
    }
    Failure::new(crate::exit::status_of(error.kind()), text)
}

/// Who holds the locks, in words; empty if they are free. `None`: the server does not answer. `in_queue`:
/// this process may be one of the waiters, so their number is left out.
async fn who_holds(locks: &Locks, names: &[LockName], in_queue: bool) -> Option<String> {
    let mut words = Vec::new();
    for status in statuses(locks, names).await? {
        match status {
            Ok(mut status) => {
                if in_queue {
                    status.waiters = 0;
                }
                words.extend(sentence(&status));
            }
            Err(error) if error.kind() == ErrorKind::Unreachable => return None,
            Err(error) => words.push(format!("{error:#}")),
        }
    }
    Some(words.join("; "))
}

/// The locks as the server shows them. Those that it does not show are left out, and if it takes too long, all.
pub(crate) async fn looked_at(locks: &Locks, names: &[LockName]) -> Vec<LockStatus> {
    statuses(locks, names).await.into_iter().flatten().flatten().collect()
}

/// What the server says of each lock. `None`: it takes too long.
async fn statuses(locks: &Locks, names: &[LockName]) -> Option<Vec<Result<LockStatus>>> {
    let looking = async {
        let mut seen = Vec::new();
        for name in names {
            seen.push(locks.inspect(name).await);
        }
        seen
    };
    timeout(INSPECT_LIMIT, looking).await.ok()
}

/// `"a" is held by web-1:4711 for 5s (token 7), and 2 wait`. `None`: it is free.
pub(crate) fn sentence(status: &LockStatus) -> Option<String> {
    let Some(first) = status.holders.first() else {
        let left = rounded(status.unknown_for?);
        return Some(format!(
            "whether {:?} is held is unknown for another {left} (grace period)",
            status.name
        ));
    };
    let mut text = format!(
        "{:?} is held by {} for {} (token {})",
        status.name,
        first.label,
        rounded(first.held_for),
        first.token
    );
    match status.holders.len() {
        1 => (),
        2 => text += " and 1 other",
        many => drop(write!(text, " and {} others", many - 1)),
    }
    match status.waiters {
        0 => (),
        1 => text += ", and 1 waits",
        many => drop(write!(text, ", and {many} wait")),
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use lockwell::{FencingToken, Holder};

    use super::*;

    #[test]
    fn holders_are_shown_in_words() {
        let holder = |label: &str| {
            let left = Duration::from_secs(9);
            Holder::new(FencingToken::new(7), label, Mode::Shared, left)
                .held_for(Duration::from_millis(61_234))
        };
        let status = |holders, waiters| LockStatus::new(LockName::new("a").unwrap(), holders, waiters);
        assert_eq!(sentence(&status(vec![], 3)), None);
        let unknown = status(vec![], 0).unknown_for(Some(Duration::from_secs(7)));
        let unknown = sentence(&unknown).unwrap();
        assert!(unknown.starts_with("whether \"a\" is held is unknown for another 7s "), "{unknown}");
        let one = sentence(&status(vec![holder("web:1")], 0)).unwrap();
        assert_eq!(one, "\"a\" is held by web:1 for 1m 1s (token 7)");
        let three = sentence(&status(vec![holder("x"), holder("y"), holder("z")], 2)).unwrap();
        assert_eq!(three, "\"a\" is held by x for 1m 1s (token 7) and 2 others, and 2 wait");
    }
}
