//! The list of backends, and how to get hold of one.

use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock};

use lockwell::conformance::{Case, Harness, Need};
use testbed::Release;

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
type Start = Box<dyn Fn() -> Starting + Send + Sync>;

/// One backend that the suite runs on.
pub(crate) struct Target {
    pub(crate) name: String,
    /// The schemes that this target covers.
    pub(crate) schemes: &'static [&'static str],
    pub(crate) offers: Vec<Need>,
    start: Start,
    /// What runs there, if it is a server.
    pub(crate) release: Option<&'static Release>,
    /// Starts another for each case that needs a link, where a link changes the server.
    start_linked: Option<Start>,
    /// Whether each case gets one of its own, where that costs next to nothing.
    one_each: bool,
    ordinary: OnceLock<Started>,
    /// A server of its own for the cases that stop it.
    disturbed: OnceLock<Started>,
    /// Held by the case that stops the server.
    pub(crate) turn: Mutex<()>,
}

impl Target {
    fn new<F>(
        name: impl Into<String>,
        schemes: &'static [&'static str],
        offers: Vec<Need>,
        start: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Started> + Send + 'static,
    {
        Self {
            name: name.into(),
            schemes,
            offers,
            start: Box::new(move || Box::pin(start())),
            release: None,
            start_linked: None,
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

    #[cfg(any(feature = "postgres", feature = "mysql", feature = "redis", feature = "zk"))]
    fn on(self, release: &'static Release) -> Self {
        Self { release: Some(release), ..self }
    }

    /// Whether its server is fetched, and not one that the machine has to have.
    pub(crate) fn is_newer(&self) -> bool {
        self.release.is_some_and(Release::is_newer)
    }

    /// Each case that needs a link gets such a harness, of its own.
    #[cfg(feature = "tls")]
    fn linked<F>(self, start: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Started> + Send + 'static,
    {
        Self { start_linked: Some(Box::new(move || Box::pin(start()))), ..self }
    }

    /// The harness for a case, whose server is started with the first case.
    pub(crate) fn harness(&self, case: &Case) -> Started {
        let place = if case.disturbs_the_server() { &self.disturbed } else { &self.ordinary };
        let start = |start: &Start| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.map_err(|error| Missing::Broken(error.to_string()))?.block_on(start())
        };
        match &self.start_linked {
            Some(linked) if case.needs.contains(&Need::Link) => start(linked),
            _ if self.one_each => start(&self.start),
            _ => place.get_or_init(|| start(&self.start)).clone(),
        }
    }
}

/// Which targets there are: all with the servers that the machine has, and with newer releases the following.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    /// One server of each newer release that [every run](Release::is_usual) has.
    Usual,
    /// All that newer releases are known to run, and nothing else.
    Newer,
    All,
}

impl Choice {
    /// `LOCKWELL_SERVERS`: `usual`, `newer` or `all`.
    fn of_the_environment() -> Self {
        match std::env::var("LOCKWELL_SERVERS").as_deref() {
            Err(_) | Ok("" | "usual") => Self::Usual,
            Ok("newer") => Self::Newer,
            Ok("all") => Self::All,
            Ok(other) => panic!("LOCKWELL_SERVERS={other}: it is usual, newer or all"),
        }
    }
}

/// Whether the targets are to cover all backends.
pub(crate) fn are_all_backends() -> bool {
    Choice::of_the_environment() != Choice::Newer
}

/// Every backend. A new one gets an entry here and a harness beside this file.
pub(crate) fn all() -> Vec<Target> {
    let choice = Choice::of_the_environment();
    let mut targets = Vec::new();
    if choice != Choice::Newer {
        targets.push(
            Target::new("memory", &["memory"], super::memory::offers(), || ready(super::memory::start()))
                .one_each(),
        );
        #[cfg(feature = "sqlite")]
        targets.push(
            Target::new("sqlite", &["sqlite"], super::files::offers(), || ready(super::files::start()))
                .one_each(),
        );
    }
    #[cfg(any(feature = "postgres", feature = "mysql", feature = "redis", feature = "zk"))]
    for release in Release::all() {
        targets.extend(on(release, choice));
    }
    targets
}

/// The targets on a release.
#[cfg(any(feature = "postgres", feature = "mysql", feature = "redis", feature = "zk"))]
fn on(release: &'static Release, choice: Choice) -> Vec<Target> {
    let mut targets = match release.family() {
        #[cfg(feature = "redis")]
        testbed::Family::Redis => redis(release),
        #[cfg(feature = "mysql")]
        testbed::Family::MySql => {
            vec![Target::new("mariadb", &["mysql", "mariadb"], super::databases::offers(), move || {
                super::databases::mariadb(release)
            })]
        }
        #[cfg(feature = "postgres")]
        testbed::Family::Postgres => postgres(release),
        #[cfg(feature = "zk")]
        testbed::Family::ZooKeeper => zookeeper(release),
        _ => Vec::new(),
    };
    if release.is_newer() {
        match choice {
            // One server of it.
            Choice::Usual if release.is_usual() => targets.truncate(1),
            Choice::Usual => targets.clear(),
            Choice::Newer | Choice::All => (),
        }
        // The name of the release in the place of that of its kind.
        for target in &mut targets {
            let rest = ["redis", "mariadb", "postgres", "zookeeper"]
                .into_iter()
                .find_map(|kind| target.name.strip_prefix(kind))
                .map_or_else(|| format!("_{}", target.name), str::to_owned);
            target.name = format!("{}{rest}", release.name());
        }
    } else if choice == Choice::Newer {
        targets.clear();
    }
    targets.into_iter().map(|target| target.on(release)).collect()
}

#[cfg(feature = "redis")]
fn redis(release: &'static Release) -> Vec<Target> {
    use super::{redis, redlock};
    #[cfg(feature = "tls")]
    use super::{redis_cluster, redis_sentinel};
    const SCHEMES: &[&str] = &[
        "redis",
        "rediss",
        "redis+unix",
        "redis+sentinel",
        "rediss+sentinel",
        "redis+cluster",
        "rediss+cluster",
    ];
    let redlock = |name, schemes, count, trouble| {
        Target::new(name, schemes, redlock::offers(), move || redlock::start(release, count, trouble))
    };
    vec![
        Target::new("redis", SCHEMES, redis::offers(), move || redis::one(release)),
        #[cfg(feature = "tls")]
        Target::new("redis_sentinel", SCHEMES, redis_sentinel::offers(), move || {
            redis_sentinel::start(release)
        }),
        #[cfg(feature = "tls")]
        Target::new("redis_cluster", SCHEMES, redis::offers(), move || redis_cluster::start(release))
            .linked(move || redis_cluster::start_linked(release)),
        redlock("redlock3", &["redlock", "redlocks"], 3, Trouble::None),
        redlock("redlock5", &["redlock"], 5, Trouble::None),
        redlock("redlock5_two_dead", &["redlock"], 5, Trouble::Dead(2)),
        redlock("redlock5_black_hole", &["redlock"], 5, Trouble::BlackHole),
    ]
}

#[cfg(feature = "postgres")]
fn postgres(release: &'static Release) -> Vec<Target> {
    use super::databases;
    let schemes = &["postgres", "postgresql"];
    vec![
        Target::new("postgres", schemes, databases::offers(), move || databases::postgres(release)),
        Target::new("postgres_pooled", schemes, databases::offers(), move || {
            databases::pooled(release, "?pooled=true")
        }),
        Target::new("postgres_behind", schemes, databases::offers(), move || databases::pooled(release, "")),
    ]
}

#[cfg(feature = "zk")]
fn zookeeper(release: &'static Release) -> Vec<Target> {
    use super::ensembles;
    vec![
        Target::new("zookeeper", &["zk"], ensembles::offers(), move || ensembles::one(release)),
        Target::new("zookeeper_ensemble", &["zk"], ensembles::offers_of_three(), move || {
            ensembles::three(release)
        }),
    ]
}

/// A folder in memory where there is one: the suite is about locks, not about disks.
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql", feature = "redis", feature = "zk"))]
pub(crate) fn quick_folder() -> std::path::PathBuf {
    let memory = std::path::Path::new("/dev/shm");
    if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() }
}
