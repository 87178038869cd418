//! The client of a lock server.

use std::future::IntoFuture as _;

use lockwell::{Error, Job, LockAllGuard, LockGuard, Locks, Requirement, Result};
use pyo3::IntoPyObjectExt as _;
use pyo3::prelude::*;

use crate::config::Settings;
use crate::error::raise;
use crate::guard::{Taken, TakenAll};
use crate::hold::Hold;
use crate::observer::{Events, Observer};
use crate::once::Begun;
use crate::op::{Nothing, Op, Outcome, Plain, start};
use crate::options::{Options, attempts, permits, seconds};
use crate::owned::Owned;
use crate::owner::Owner;
use crate::show;

/// A client of a lock server.
#[pyclass(frozen, module = "lockwell._native")]
pub(crate) struct Client {
    locks: Owned<Locks>,
}

impl Client {
    pub(crate) fn new(locks: Locks) -> Self {
        Self { locks: Owned::new(locks) }
    }
}

/// A client that has connected.
struct Connected(Locks);

impl Outcome for Connected {
    fn into_python(self: Box<Self>, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Client::new(self.0).into_py_any(py)
    }
}

#[pymethods]
impl Client {
    /// Connects, and checks the server.
    #[staticmethod]
    fn connect(settings: Settings) -> PyResult<Op> {
        let config = settings.config().map_err(raise)?;
        start(async { lockwell::connect_with(config).await.map(Connected) })
    }

    /// A client that connects with its first request.
    #[staticmethod]
    fn lazy(settings: Settings) -> PyResult<Self> {
        let locks = settings.config().and_then(lockwell::connect_lazy_with).map_err(raise)?;
        Ok(Self::new(locks))
    }

    /// Takes one lock, waiting or not. `limit` is the number of permits.
    fn acquire(
        &self,
        kind: &str,
        name: &str,
        #[pyo3(from_py_with = permits)] limit: u32,
        options: Options,
        now: bool,
        through_grace: bool,
    ) -> PyResult<Op> {
        let locks = self.locks.get()?;
        if kind == "leader" {
            let request = options.apply(locks.campaign(name), through_grace).map_err(raise)?;
            return start(async move {
                if now { maybe(request.try_now().await) } else { held(request.into_future().await) }
            });
        }
        let request = match kind {
            "shared" => locks.read(name),
            "permit" => locks.permit(name, limit),
            _ => locks.lock(name),
        };
        let request = options.apply(request, through_grace).map_err(raise)?;
        start(
            async move { if now { maybe(request.try_now().await) } else { held(request.into_future().await) } },
        )
    }

    /// Takes several locks, waiting or not: all of them or none.
    fn acquire_all(
        &self,
        names: Vec<String>,
        reading: Vec<String>,
        options: Options,
        now: bool,
        through_grace: bool,
    ) -> PyResult<Op> {
        let request = self.locks.get()?.lock_all(names).reading(reading);
        let request = options.apply(request, through_grace).map_err(raise)?;
        start(async move {
            let all = if now { request.try_now().await? } else { Some(request.await?) };
            Ok(TakenAll::new(all.map(LockAllGuard::into_guards)))
        })
    }

    fn inspect(&self, name: String) -> PyResult<Op> {
        let locks = self.locks.get()?.clone();
        start(async move { locks.inspect(name).await.map(|status| Plain(show::status(&status))) })
    }

    /// The record of a lock.
    fn record(&self, name: String) -> PyResult<Op> {
        let locks = self.locks.get()?.clone();
        start(async move { locks.record(name).await.map(|found| Plain(found.map(show::record))) })
    }

    /// As far as the work of a job that runs once for a key.
    fn once(
        &self,
        name: &str,
        key: &str,
        #[pyo3(from_py_with = attempts)] most: u32,
        options: Options,
    ) -> PyResult<Op> {
        let request = self.locks.get()?.once(name, key).attempts(most);
        let request = options.apply(request, false).map_err(raise)?;
        start(async move { request.begin().await.and_then(Begun::new) })
    }

    /// The last keys of a job.
    fn job(&self, name: String) -> PyResult<Op> {
        let locks = self.locks.get()?.clone();
        start(async move { locks.job(name).await.map(jobs) })
    }

    /// The newest key of each job.
    fn jobs(&self) -> PyResult<Op> {
        let locks = self.locks.get()?.clone();
        start(async move { locks.jobs().await.map(jobs) })
    }

    fn forget_job(&self, name: String, key: String) -> PyResult<Op> {
        let locks = self.locks.get()?.clone();
        start(async move { locks.forget_job(name, key).await.map(Plain) })
    }

    /// All locks that are held.
    fn held(&self) -> PyResult<Op> {
        let locks = self.locks.get()?.clone();
        start(
            async move { locks.held().await.map(|all| Plain(all.iter().map(show::status).collect::<Vec<_>>())) },
        )
    }

    fn force_release(&self, name: String) -> PyResult<Op> {
        let locks = self.locks.get()?.clone();
        start(async move { locks.force_release(name).await.map(Plain) })
    }

    /// The changes of the leader of this name.
    fn observe(&self, name: &str, every: f64) -> PyResult<Observer> {
        let every = seconds("every", every).map_err(raise)?;
        Ok(Observer::new(self.locks.get()?.observe(name).every(every)))
    }

    /// The events of this client from now on.
    fn events(&self) -> PyResult<Events> {
        Ok(Events::new(self.locks.get()?.events()))
    }

    /// A new owner of re-entrant locks.
    fn owner(&self) -> PyResult<Owner> {
        Ok(Owner::new(self.locks.get()?.owner()))
    }

    /// This client, but the server orders all requests.
    fn server_order(&self) -> PyResult<Self> {
        Ok(Self::new(self.locks.get()?.clone().server_order()))
    }

    /// This client, with another rule for passing locks on.
    fn hand_off(&self, most: u32, span: f64) -> PyResult<Self> {
        let span = seconds("span", span).map_err(raise)?;
        Ok(Self::new(self.locks.get()?.clone().hand_off(most, span)))
    }

    /// For how many seconds the server grants nothing.
    fn grace_left(&self) -> PyResult<Op> {
        let locks = self.locks.get()?.clone();
        start(async move { locks.grace_left().await.map(|left| Plain(left.map(|left| left.as_secs_f64()))) })
    }

    fn begin_grace(&self) -> PyResult<Op> {
        let locks = self.locks.get()?.clone();
        start(async move { locks.begin_grace().await.map(|length| Plain(length.as_secs_f64())) })
    }

    fn end_grace(&self) -> PyResult<Op> {
        let locks = self.locks.get()?.clone();
        start(async move { locks.end_grace().await.map(|()| Nothing) })
    }

    /// What the server's settings mean for locks.
    fn examine(&self) -> PyResult<Op> {
        let locks = self.locks.get()?.clone();
        start(async move {
            let findings = locks.backend().examine().await?;
            Ok(Plain(findings.into_iter().map(show::finding).collect::<Vec<_>>()))
        })
    }

    /// The shortest and the longest lease in seconds, and whether a lock ends with the session.
    #[getter]
    fn leases(&self) -> PyResult<(f64, f64, bool)> {
        let promised = self.locks.get()?.capabilities();
        let (shortest, longest) = (promised.min_ttl().as_secs_f64(), promised.max_ttl().as_secs_f64());
        Ok((shortest, longest, promised.is_session_bound()))
    }

    fn close(&self, limit: f64) -> PyResult<Op> {
        let limit = seconds("limit", limit).map_err(raise)?;
        let locks = self.locks.get()?.clone();
        start(async move { locks.close_within(limit).await.map(|()| Nothing) })
    }

    /// Leases that are renewed now, leases extended, calls for that, failures of them, locks lost, failed
    /// releases.
    fn stats(&self) -> PyResult<(usize, u64, u64, u64, u64, u64)> {
        let stats = self.locks.get()?.stats();
        Ok((
            stats.held,
            stats.renewals,
            stats.renewal_calls,
            stats.renewal_failures,
            stats.lost,
            stats.release_failures,
        ))
    }

    #[getter]
    fn backend(&self) -> PyResult<&'static str> {
        Ok(self.locks.get()?.capabilities().backend())
    }

    /// Whether the backend promises this.
    fn promises(&self, requirement: &str) -> PyResult<bool> {
        let requirement: Requirement = requirement.parse().map_err(raise)?;
        Ok(self.locks.get()?.capabilities().promises(requirement))
    }

    #[getter]
    fn servers(&self) -> PyResult<Option<String>> {
        Ok(self.locks.get()?.backend().servers().map(str::to_owned))
    }
}

fn jobs(all: Vec<Job>) -> Plain<Vec<show::JobShown>> {
    Plain(all.into_iter().map(show::job).collect())
}

fn held(outcome: Result<LockGuard>) -> Result<Taken, Error> {
    outcome.map(|guard| Taken::new(Some(Hold::Sole(guard))))
}

fn maybe(outcome: Result<Option<LockGuard>>) -> Result<Taken, Error> {
    outcome.map(|guard| Taken::new(guard.map(Hold::Sole)))
}
