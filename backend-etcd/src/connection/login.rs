//! Logins: few, and one at a time.
//!
//! A server computes each login for some 60 ms (bcrypt), and computes all that it has been asked for side by
//! side. If those whose login is late ask again at once, it computes ever more of them, and nobody is served.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use lockwell_core::backend::{Backoff, Failure, PerProcess, lock};
use lockwell_core::{Error, ErrorKind, Moment, Passwords, Secret};
use tokio::sync::watch;
use tonic::Status;

use super::line::{Line, Token};
use crate::dials::again;
use crate::error::explain;
use crate::messages::{Authenticate, Token as Answer};
use crate::options::EtcdOptions;

/// How long one login may take: of a fleet that logs in at the same time, each waits for all the others.
const PATIENCE: Duration = Duration::from_secs(15);

/// A login that has taken longer has no runtime that drives it, so others do not wait for it any more.
const STUCK: Duration = Duration::from_secs(16);

/// The first and the longest pause after a login that has failed.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_mins(1));

/// The logins of one user to one cluster, for all clients and runtimes of this process.
pub(super) struct Logins {
    servers: Vec<String>,
    user: String,
    passwords: Passwords,
    state: Mutex<LoginState>,
}

struct LoginState {
    token: Option<Token>,
    /// When the login began that is under way, and its end.
    under_way: Option<(Moment, watch::Receiver<()>)>,
    /// Why the last one has failed, and when there may be another.
    failed: Option<(Failure, Moment)>,
    pauses: Backoff,
}

/// Those that have a client.
static ALL: PerProcess<Arc<Mutex<Vec<Weak<Logins>>>>> = PerProcess::new();

impl Logins {
    /// Those of the user in this address; `None` if it names none.
    pub(super) fn of(options: &EtcdOptions) -> Option<Arc<Self>> {
        let (user, passwords) = options.login.clone()?;
        let mut servers = options.endpoints.clone();
        servers.sort();
        let all = ALL.get_or_init(Arc::default);
        let mut all = lock(&all);
        all.retain(|one| one.strong_count() > 0);
        let same =
            |one: &Arc<Self>| (&one.servers, &one.user, &one.passwords) == (&servers, &user, &passwords);
        if let Some(one) = all.iter().filter_map(Weak::upgrade).find(same) {
            return Some(one);
        }
        let one = Arc::new(Self { servers, user, passwords, state: Mutex::new(LoginState::new()) });
        all.push(Arc::downgrade(&one));
        Some(one)
    }

    /// The token of the last login.
    pub(super) fn token(&self) -> Option<Token> {
        lock(&self.state).token.clone()
    }

    /// Fails during the pause after a login that has failed.
    pub(super) fn may_go_on(&self) -> Result<(), Failure> {
        lock(&self.state).may_go_on()
    }

    /// A token that the servers have not refused: that of the login under way, if there is one.
    ///
    /// # Cancel safety
    /// Cancel safe: if this was the login under way, another takes its place.
    pub(super) async fn log_in(&self, line: &Line, refused: Option<&Token>) -> Result<Token, Failure> {
        let end = loop {
            let (began, mut end) = {
                let mut state = lock(&self.state);
                if state.token.as_ref() == refused {
                    state.token = None;
                }
                if let Some(token) = &state.token {
                    return Ok(token.clone());
                }
                state.may_go_on()?;
                let under_way = state.under_way.as_ref();
                let lives = |(began, end): &&(Moment, watch::Receiver<()>)| {
                    end.has_changed().is_ok() && !began.after(STUCK).has_passed()
                };
                if let Some(under_way) = under_way.filter(lives) {
                    under_way.clone()
                } else {
                    let (end, ended) = watch::channel(());
                    state.under_way = Some((Moment::now(), ended));
                    break end;
                }
            };
            // It ends with its sender.
            drop(tokio::time::timeout(began.after(STUCK).remaining(), end.changed()).await);
        };
        let answer = tokio::time::timeout(PATIENCE, self.ask(line)).await.unwrap_or_else(|_| {
            let text = "etcd does not answer a login, as when too many log in at the same time";
            Err(Failure::Doubtful(Error::new(ErrorKind::Unreachable, text)))
        });
        lock(&self.state).ended(&answer);
        drop(end);
        answer
    }

    /// With the present password. If the server refuses it, and there is another by now, with that one.
    async fn ask(&self, line: &Line) -> Result<Token, Failure> {
        let with = |password: &Secret| {
            let login = Authenticate { name: self.user.clone(), password: password.expose().to_owned() };
            line.ask("/etcdserverpb.Auth/Authenticate", login)
        };
        let password = self.passwords.current().await.map_err(Failure::Doubtful)?;
        let mut answer: Result<Answer, Status> = with(&password).await;
        if let Err(status) = &answer
            && matches!(explain(status), Failure::Refused(_))
            && let Some(other) = self.passwords.other_than(&password).await
        {
            answer = with(&other).await;
        }
        let token = answer.map_err(|status| explain(&status))?.token;
        let no_text = |_| Failure::Refused(Error::new(ErrorKind::Internal, "the server's token is no text"));
        let mut token: Token = token.parse().map_err(no_text)?;
        // Whoever prints the metadata of a request does not print it.
        token.set_sensitive(true);
        Ok(token)
    }
}

impl LoginState {
    fn new() -> Self {
        Self { token: None, under_way: None, failed: None, pauses: Backoff::new(PAUSES.0, PAUSES.1) }
    }

    fn may_go_on(&self) -> Result<(), Failure> {
        match &self.failed {
            Some((failure, until)) if !until.has_passed() => Err(again(failure)),
            _ => Ok(()),
        }
    }

    fn ended(&mut self, answer: &Result<Token, Failure>) {
        match answer {
            Ok(token) => *self = Self { token: Some(token.clone()), ..Self::new() },
            Err(failure) => {
                self.under_way = None;
                self.failed = Some((again(failure), Moment::now().after(self.pauses.next_pause())));
            }
        }
    }
}
