//! Passwords that may change while a client lives.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;

use super::Secret;
use super::password_file::{self, PasswordFile};
use crate::system::{SharedRuntime, lock};
use crate::{Error, ErrorKind, Moment, Result};

/// Where the calls run: they are code of the application, or read files, and may block.
static CALLS: SharedRuntime = SharedRuntime::new("lockwell-passwords");

/// How long a new connection waits for its password. A call that takes longer goes on, and the next
/// connection waits for it.
const WAIT: Duration = Duration::from_millis(1500);

/// How long a call may take. After that it counts as one that will not return, and another is begun.
const CALL: Duration = Duration::from_secs(30);

/// The most calls that have not returned. Each keeps a thread.
const CALLS_UNDER_WAY: usize = 4;

/// How errors call a function of the application.
const FUNCTION: &str = "the function that gives the password";

/// For how long after its call a password is used that came too late for the connection that had asked for
/// it.
const LATE: Duration = Duration::from_secs(10);

type Asking = Pin<Box<dyn Future<Output = Result<Secret>>>>;
type Ask = Box<dyn Fn() -> Asking + Send + Sync>;
type Answer = Option<Arc<Result<Secret>>>;

/// Where a new connection gets its password: a text, a file, or a function of the application.
///
/// Backends ask for it each time they make a connection, so a password may change while they are connected.
/// `Debug` shows no password.
#[derive(Clone)]
pub struct Passwords(Arc<Inner>);

struct Inner {
    source: Source,
    latest: Mutex<Option<PasswordCall>>,
    /// Each call has a handle to it until it returns.
    under_way: Arc<()>,
}

enum Source {
    Text(Secret),
    File(PasswordFile),
    Function(Ask),
}

/// A call of the function, or a reading of the file.
struct PasswordCall {
    began: Moment,
    answer: watch::Receiver<Answer>,
    /// Whether a connection has stopped waiting for it.
    is_late: bool,
}

impl Passwords {
    /// A password that stays as it is.
    pub fn fixed(secret: Secret) -> Self {
        Self::new(Source::Text(secret))
    }

    /// The only line of the file at this path, for a password that `option` of an address names beside the
    /// one of [`password_file`](crate::LockConfig::password_file), in the same way.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) if the file cannot be read now, or has no such line.
    pub fn in_file(option: &'static str, path: impl Into<String>) -> Result<Self> {
        Self::read(PasswordFile::new(option, path)).map(|(passwords, _)| passwords)
    }

    /// The passwords of this file, and the present one.
    pub(super) fn read(file: PasswordFile) -> Result<(Self, Secret)> {
        match file.read() {
            Ok(present) => Ok((Self::new(Source::File(file)), present)),
            Err(why) => Err(Error::new(ErrorKind::InvalidInput, format!("{file}: {why}"))),
        }
    }

    pub(super) fn function<F, E>(ask: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<String, E>> + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let ask = move || {
            let asked = ask();
            let answer = async move {
                match asked.await {
                    Ok(text) => password_file::checked(&text).map_err(|why| unavailable(FUNCTION, why)),
                    Err(error) => Err(unavailable(FUNCTION, "it has failed").with_source(error)),
                }
            };
            Box::pin(answer) as Asking
        };
        Self::new(Source::Function(Box::new(ask)))
    }

    fn new(source: Source) -> Self {
        Self(Arc::new(Inner { source, latest: Mutex::new(None), under_way: Arc::default() }))
    }

    /// The password for a connection that is made now.
    ///
    /// The file is read, or the function called, on a thread of its own, and waited for up to 1.5 s. Several
    /// connections that are made at a time share one call.
    ///
    /// # Errors
    /// [`Unreachable`](ErrorKind::Unreachable) if the file cannot be read, or the function fails, panics or
    /// does not return in time. The next connection tries again.
    ///
    /// # Cancel safety
    /// Cancel safe. The call goes on.
    pub async fn current(&self) -> Result<Secret> {
        if let Source::Text(secret) = &self.0.source {
            return Ok(secret.clone());
        }
        let mut answer = self.call()?;
        let Ok(answered) = tokio::time::timeout(WAIT, answer.wait_for(Option::is_some)).await else {
            if let Some(call) = &mut *lock(&self.0.latest) {
                call.is_late = true;
            }
            return Err(unavailable(&self.what(), format!("no password within {WAIT:?}")));
        };
        // The channel is closed without an answer.
        let answered = answered.map_err(|_| unavailable(&self.what(), "it has panicked"))?;
        let answered = match answered.as_deref() {
            Some(Ok(secret)) => Ok(secret.clone()),
            Some(Err(error)) => Err(error.duplicate()),
            None => unreachable!("it was waited for"),
        };
        if let Some(call) = &mut *lock(&self.0.latest) {
            call.is_late = false;
        }
        answered
    }

    /// The present password, if it is not the one that a server has refused: it may have changed while the
    /// connection was being made.
    ///
    /// # Cancel safety
    /// As [`current`](Self::current).
    pub async fn other_than(&self, refused: &Secret) -> Option<Secret> {
        if matches!(self.0.source, Source::Text(_)) {
            return None;
        }
        self.current().await.ok().filter(|present| present != refused)
    }

    /// The call that a new connection waits for: the one under way, or a new one.
    fn call(&self) -> Result<watch::Receiver<Answer>> {
        let mut latest = lock(&self.0.latest);
        if let Some(call) = &mut *latest {
            if call.serves_another() {
                return Ok(call.answer.clone());
            }
        }
        if Arc::strong_count(&self.0.under_way) > CALLS_UNDER_WAY {
            return Err(unavailable(&self.what(), format!("{CALLS_UNDER_WAY} calls have not returned")));
        }
        let (inner, under_way) = (Arc::clone(&self.0), Arc::clone(&self.0.under_way));
        let (sender, answer) = watch::channel(None);
        CALLS.get()?.start_blocking("lockwell-password", move |runtime| {
            let answer = match &inner.source {
                Source::Text(secret) => Ok(secret.clone()),
                Source::File(file) => file.read().map_err(|why| unavailable(&file.to_string(), why)),
                Source::Function(ask) => runtime.block_on(async { ask().await }),
            };
            sender.send_replace(Some(Arc::new(answer)));
            // A panic drops it as well.
            drop(under_way);
        })?;
        *latest = Some(PasswordCall { began: Moment::now(), answer: answer.clone(), is_late: false });
        Ok(answer)
    }

    fn what(&self) -> String {
        match &self.0.source {
            Source::File(file) => file.to_string(),
            Source::Text(_) | Source::Function(_) => FUNCTION.to_owned(),
        }
    }
}

impl PasswordCall {
    /// Whether a new connection waits for this call, or has its answer. An answer is used again only if the
    /// connection that had asked for it has not waited so long.
    fn serves_another(&mut self) -> bool {
        if self.answer.has_changed().is_ok() && self.answer.borrow().is_none() {
            return !self.began.after(CALL).has_passed();
        }
        let has_answer = matches!(self.answer.borrow().as_deref(), Some(Ok(_)));
        std::mem::take(&mut self.is_late) && has_answer && !self.began.after(LATE).has_passed()
    }
}

fn unavailable(what: &str, why: impl fmt::Display) -> Error {
    Error::new(ErrorKind::Unreachable, format!("{what}: {why}"))
}

impl PartialEq for Passwords {
    /// Two functions are equal if one is a clone of the other.
    fn eq(&self, other: &Self) -> bool {
        match (&self.0.source, &other.0.source) {
            (Source::Text(one), Source::Text(two)) => one == two,
            (Source::File(one), Source::File(two)) => one == two,
            _ => Arc::ptr_eq(&self.0, &other.0),
        }
    }
}

impl Eq for Passwords {}

impl fmt::Debug for Passwords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.source {
            Source::Text(secret) => secret.fmt(f),
            Source::File(_) | Source::Function(_) => f.write_str(&self.what()),
        }
    }
}

#[cfg(test)]
#[path = "passwords_tests.rs"]
mod tests;
