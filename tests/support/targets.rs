//! The list of backends, and how to get hold of one.

use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock};

use lockwell::conformance::{Harness, Need};

#[cfg(feature = "redis")]
use super::redlock::Trouble;

/// A harness, or why there is none.
pub(crate) type Started = Result<Arc<dyn Harness>, Missing>;

/// Why a backend cannot be tested here.
#[derive(Clone, Debug)]
pub(crate) enum Missing {
    /// Its server is not on this machine.
    #[cfg_attr(
        not(any(feature = "postgres", feature = "mysql", feature = "redis", feature = "zk")),
        allow(dead_code)
    )]
    NotInstalled(String),
    /// It did not start.
    Broken(String),
}

type Starting = Pin<Box<dyn Future<Output = Started> + Send>>;

/// One backend that the suite runs on.
pub(crate) struct Target {
    pub(crate) name: &'static str,
    /// The schemes that this target covers.
    pub(crate) schemes: &'static [&'static str],
    pub(crate) offers: Vec<Need>,
    start: fn() -> Starting,
    /// Whether each case gets one of its own, where that costs next to nothing.
    one_each: bool,
    ordinary: OnceLock<Started>,
    /// A server of its own for the cases that stop it.
    disturbed: OnceLock<Started>,
    /// Held by the case that stops the server.
    pub(crate) turn: Mutex<()>,
}

impl Target {
    fn new(
        name: &'static str,
        schemes: &'static [&'static str],
        offers: Vec<Need>,
        start: fn() -> Starting,
    ) -> Self {
        Self {
            name,
            schemes,
            offers,
            start,
            one_each: false,
            ordinary: OnceLock::new(),
            disturbed: OnceLock::new(),
            turn: Mutex::default(),
        }
    }

    /// Each case gets a harness of its own.
    fn one_each(self) -> Self {
        Self { one_each: true, ..self }
    }

    /// The harness, whose server is started by the first who asks.
    pub(crate) fn harness(&self, disturbs_the_server: bool) -> Started {
        let place = if disturbs_the_server { &self.disturbed } else { &self.ordinary };
        let start = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.map_err(|error| Missing::Broken(error.to_string()))?.block_on((self.start)())
        };
        if self.one_each {
            return start();
        }
        place.get_or_init(start).clone()
    }
}

/// Every backend. A new one gets an entry here and a harness beside this file.
pub(crate) fn all() -> Vec<Target> {
    vec![
        Target::new("memory", &["memory"], super::memory::offers(), || {
            Box::pin(ready(super::memory::start()))
        })
        .one_each(),
        #[cfg(feature = "sqlite")]
        Target::new("sqlite", &["sqlite"], super::files::offers(), || Box::pin(ready(super::files::start())))
            .one_each(),
        #[cfg(feature = "postgres")]
        Target::new("postgres", &["postgres", "postgresql"], super::databases::offers(), || {
            Box::pin(super::databases::postgres())
        }),
        #[cfg(feature = "postgres")]
        Target::new("postgres_pooled", &["postgres", "postgresql"], super::databases::offers(), || {
            Box::pin(super::databases::pooled())
        }),
        #[cfg(feature = "mysql")]
        Target::new("mariadb", &["mysql", "mariadb"], super::databases::offers(), || {
            Box::pin(super::databases::mariadb())
        }),
        #[cfg(feature = "redis")]
        Target::new(
            "redis",
            &[
                "redis",
                "rediss",
                "redis+unix",
                "redis+sentinel",
                "rediss+sentinel",
                "redis+cluster",
                "rediss+cluster",
            ],
            super::redis::offers(),
            || Box::pin(super::redis::one()),
        ),
        #[cfg(feature = "redis")]
        Target::new("redlock3", &["redlock", "redlocks"], super::redlock::offers(), || {
            Box::pin(super::redlock::start(3, Trouble::None))
        }),
        #[cfg(feature = "redis")]
        Target::new("redlock5", &["redlock"], super::redlock::offers(), || {
            Box::pin(super::redlock::start(5, Trouble::None))
        }),
        #[cfg(feature = "redis")]
        Target::new("redlock5_two_dead", &["redlock"], super::redlock::offers(), || {
            Box::pin(super::redlock::start(5, Trouble::Dead(2)))
        }),
        #[cfg(feature = "redis")]
        Target::new("redlock5_black_hole", &["redlock"], super::redlock::offers(), || {
            Box::pin(super::redlock::start(5, Trouble::BlackHole))
        }),
        #[cfg(feature = "zk")]
        Target::new("zookeeper", &["zk"], super::ensembles::offers(), || Box::pin(super::ensembles::one())),
        #[cfg(feature = "zk")]
        Target::new("zookeeper_ensemble", &["zk"], super::ensembles::offers(), || {
            Box::pin(super::ensembles::three())
        }),
        #[cfg(feature = "zk")]
        Target::new("zookeeper_simple", &["zk"], super::ensembles::offers_of_simple(), || {
            Box::pin(super::ensembles::simple())
        }),
    ]
}

/// A folder in memory where there is one: the suite is about locks, not about disks.
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql", feature = "redis", feature = "zk"))]
pub(crate) fn quick_folder() -> std::path::PathBuf {
    let memory = std::path::Path::new("/dev/shm");
    if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() }
}
