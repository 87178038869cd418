//! A backend that the suite runs on, and its servers.

use std::fmt;
use std::net::SocketAddr;
use std::pin::Pin;
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock};

use super::one_server::OneServer;
use super::process::{ServerProcess, Site};
use crate::kit::connect::{Connect, Missing};
use crate::{Case, Harness, Need};
use lockwell_core::Result;

/// A harness, or the reason why there is none.
pub(super) type Started = Result<Arc<dyn Harness>, Missing>;
type Starting = Pin<Box<dyn Future<Output = Started> + Send>>;
type Start = Box<dyn Fn(Connect) -> Starting + Send + Sync>;
type Which = Box<dyn Fn(&Case) -> bool + Send + Sync>;

/// One backend on one kind of server.
pub struct Target {
    pub(super) name: String,
    offers: Vec<Need>,
    start: Start,
    /// Cases with a separate harness, which `own_start` starts, or `start` if there is none.
    own: Option<Which>,
    own_start: Option<Start>,
    /// The cases that run on this target.
    only: Option<Which>,
    /// Whether its server must be there with `LOCKWELL_REQUIRE_SERVERS=1`.
    pub(super) is_required: bool,
    ordinary: OnceLock<Started>,
    /// A separate server for the cases that stop it.
    disturbed: OnceLock<Started>,
    /// Locked while a case stops the server.
    pub(super) turn: Mutex<()>,
}

impl Target {
    /// A target with its own harness. `start` is called twice at most: the cases that stop the server use a
    /// separate one.
    pub fn new<F>(
        name: impl Into<String>,
        offers: impl Into<Vec<Need>>,
        start: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<Arc<dyn Harness>, Missing>> + Send + 'static,
    {
        Self::starting(name.into(), offers.into(), move |_| Box::pin(start()))
    }

    /// A target on a server that is one process and speaks TCP. The kit starts, pauses and restarts it, and
    /// puts a network that fails on demand in front of it.
    ///
    /// `backend` lists the needs that the backend itself meets, such as `[Need::Shared, Need::Fifo]`; the kit
    /// meets [`Need::Process`], [`Need::Server`] and [`Need::Link`]. `command` starts the server in the
    /// foreground. The server listens at the address of the [`Site`], stores its data in the folder of the
    /// site, and ends cleanly on SIGTERM. `url` makes the address for clients from a socket address, which is
    /// that of the server or of the network in front of it. The server is ready when a client can connect.
    pub fn on_server(
        name: impl Into<String>,
        backend: impl Into<Vec<Need>>,
        command: impl Fn(&Site) -> Command + Send + Sync + 'static,
        url: impl Fn(SocketAddr) -> String + Send + Sync + 'static,
    ) -> Self {
        let (command, url) = (Arc::new(command), Arc::new(url));
        let mut offers = backend.into();
        offers.extend([Need::Process, Need::Server, Need::Link]);
        let all = offers.clone();
        Self::starting(name.into(), offers, move |connect| {
            let (command, url, offers) = (command.clone(), url.clone(), all.clone());
            Box::pin(async move {
                let client = {
                    let (url, connect) = (Arc::clone(&url), Arc::clone(&connect));
                    move |addr| connect(url(addr))
                };
                let process = ServerProcess::start(command, client).await?;
                let server = OneServer::new(
                    offers,
                    process.addr(),
                    process,
                    move |addr| url(addr),
                    move |url| connect(url),
                );
                Ok(Arc::new(server) as Arc<dyn Harness>)
            })
        })
    }

    fn starting(
        name: String,
        offers: Vec<Need>,
        start: impl Fn(Connect) -> Starting + Send + Sync + 'static,
    ) -> Self {
        Self {
            name,
            offers,
            start: Box::new(start),
            own: None,
            own_start: None,
            only: None,
            is_required: true,
            ordinary: OnceLock::new(),
            disturbed: OnceLock::new(),
            turn: Mutex::default(),
        }
    }

    /// Each case gets a separate harness, where that costs little.
    #[must_use]
    pub fn one_each(mut self) -> Self {
        self.own = Some(Box::new(|_| true));
        self
    }

    /// Each of these cases gets a separate harness from `start`, where such a case changes the server.
    #[must_use]
    pub fn one_each_for<F>(
        mut self,
        which: impl Fn(&Case) -> bool + Send + Sync + 'static,
        start: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<Arc<dyn Harness>, Missing>> + Send + 'static,
    {
        self.own = Some(Box::new(which));
        self.own_start = Some(Box::new(move |_| Box::pin(start())));
        self
    }

    /// Only these cases run on this target.
    #[must_use]
    pub fn only(mut self, which: impl Fn(&Case) -> bool + Send + Sync + 'static) -> Self {
        self.only = Some(Box::new(which));
        self
    }

    /// If its server is not installed, its cases are ignored even with `LOCKWELL_REQUIRE_SERVERS=1`.
    #[must_use]
    pub fn optional(mut self) -> Self {
        self.is_required = false;
        self
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// With another name.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    pub(super) fn runs(&self, case: &Case) -> bool {
        case.runs_with(&self.offers) && self.only.as_ref().is_none_or(|only| only(case))
    }

    /// The harness for a case. The first call starts its server.
    pub(super) fn harness(&self, case: &Case, connect: &Connect) -> Started {
        let place = if case.disturbs_the_server() { &self.disturbed } else { &self.ordinary };
        let begin = |start: &Start| {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
            runtime.map_err(|error| Missing::Broken(error.to_string()))?.block_on(start(Arc::clone(connect)))
        };
        match &self.own {
            Some(own) if own(case) => begin(self.own_start.as_ref().unwrap_or(&self.start)),
            _ => place.get_or_init(|| begin(&self.start)).clone(),
        }
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target")
            .field("name", &self.name)
            .field("offers", &self.offers)
            .finish_non_exhaustive()
    }
}
