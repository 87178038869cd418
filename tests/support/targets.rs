//! The list of backends, and how to get hold of one.

use std::future::ready;
use std::sync::Arc;

#[cfg(feature = "redis")]
use lockwell::conformance::Case;
use lockwell::conformance::{Harness, Missing, Need, cases};
use testbed::Release;

#[cfg(feature = "redis")]
use super::redlock::Trouble;

/// A harness, or why there is none.
pub(crate) type Started = Result<Arc<dyn Harness>, Missing>;

/// Cases of these subjects test lockcore alone: what they do is the same on every backend. So every run has
/// them on the backends without a server and on one with a server, and `LOCKWELL_SERVERS=all` on all.
const POLICY: [&str; 7] = ["local", "running", "reentrancy", "leading", "limits", "many", "input"];

/// The cases of these subjects that a backend can fail by itself: every target has them, but for deployments.
const NOT_POLICY: [&str; 7] = [
    "the_bounds_of_what_is_allowed_work",
    "a_lock_delay_follows_a_crash_only",
    "a_lost_guard_does_not_end_the_lock_delay",
    "several_locks_are_taken_together",
    "several_locks_are_taken_with_readers",
    "one_leads_and_the_next_follows",
    "an_owner_takes_its_lock_again",
];

/// Cases of other subjects that test lockcore alone: the renewal fails before the backend is called, or the
/// hold ends by its longest time, which no backend knows.
const ALSO_POLICY: [&str; 4] = [
    "one_lease_in_doubt_costs_the_others_nothing",
    "a_panic_in_a_renewal_costs_nothing",
    "every_loss_is_counted",
    "a_task_that_watches_a_lock_ends_with_it",
];

/// What another deployment of a server can change. In a usual run [deployments](DEPLOYMENTS) have the cases of
/// these subjects alone.
const OF_DEPLOYMENTS: [&str; 10] =
    ["exclusion", "tokens", "records", "waiting", "loss", "network", "outage", "grace", "crash", "promises"];

/// All locks of a client depend on one session there, and the backend itself reports doubts. So it has those
/// cases, too.
const WITH_SESSION: &str = "zookeeper";

/// One backend that the suite runs on.
pub(crate) struct Target {
    pub(crate) inner: lockwell::conformance::Target,
    /// The schemes that this target covers.
    pub(crate) schemes: &'static [&'static str],
    /// What runs there, if it is a server.
    pub(crate) release: Option<&'static Release>,
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
        Self { inner: lockwell::conformance::Target::new(name, offers, start), schemes, release: None }
    }

    fn change(
        mut self,
        change: impl FnOnce(lockwell::conformance::Target) -> lockwell::conformance::Target,
    ) -> Self {
        self.inner = change(self.inner);
        self
    }
}

/// The targets of every run, and the one with a server on which it tests policy.
const USUAL: [&str; 15] = [
    "memory",
    "test_double",
    "sqlite",
    "postgres",
    "postgres_grace",
    "postgres_pooled",
    "mariadb",
    "mysql9",
    "redis",
    "redis_cluster",
    "redis_sentinel",
    "redlock5",
    "zookeeper",
    "zookeeper_ensemble",
    "etcd",
];
const WITH_POLICY: [&str; 4] = ["memory", "test_double", "sqlite", "redis"];
/// Those that differ from another usual target in their servers or in what is in front of them.
const DEPLOYMENTS: [&str; 6] =
    ["postgres_grace", "postgres_pooled", "mysql9", "redis_cluster", "redis_sentinel", "zookeeper_ensemble"];

/// Which targets there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    /// The [usual](USUAL) ones, with [policy](POLICY) on few of them, and [deployments](DEPLOYMENTS) with
    /// [less](OF_DEPLOYMENTS).
    Usual,
    /// All that fetched releases are known to run, and nothing else.
    Fetched,
    All,
}

impl Choice {
    /// `LOCKWELL_SERVERS`: `usual`, `fetched` or `all`.
    fn of_the_environment() -> Self {
        match std::env::var("LOCKWELL_SERVERS").as_deref() {
            Err(_) | Ok("" | "usual") => Self::Usual,
            Ok("fetched") => Self::Fetched,
            Ok("all") => Self::All,
            Ok(other) => panic!("LOCKWELL_SERVERS={other}: it is usual, fetched or all"),
        }
    }
}

/// Whether the targets are to cover all backends.
pub(crate) fn are_all_backends() -> bool {
    Choice::of_the_environment() != Choice::Fetched
}

/// Every backend. A new one gets an entry here and a harness beside this file.
pub(crate) fn all() -> Vec<Target> {
    let choice = Choice::of_the_environment();
    let mut targets = Vec::new();
    if choice != Choice::Fetched {
        targets.push(
            Target::new("memory", &["memory"], super::memory::offers(), || ready(super::memory::start()))
                .change(lockwell::conformance::Target::one_each),
        );
        let double = || ready(super::test_double::start());
        targets.push(
            Target::new("test_double", &[], super::memory::offers(), double)
                .change(lockwell::conformance::Target::one_each),
        );
        #[cfg(feature = "sqlite-unbundled")]
        targets.push(
            Target::new("sqlite", &["sqlite"], super::files::offers(), || ready(super::files::start()))
                .change(lockwell::conformance::Target::one_each),
        );
    }
    #[cfg(any(
        feature = "postgres",
        feature = "mysql",
        feature = "redis",
        feature = "zk",
        feature = "etcd"
    ))]
    targets.extend(Release::all().iter().flat_map(|release| on(release, choice)));
    if choice == Choice::Usual {
        targets.retain(|it| USUAL.contains(&it.inner.name()));
        targets = targets.into_iter().map(|target| target.change(usual)).collect();
    }
    if std::env::var_os("LOCKWELL_HOLDER").is_some() {
        targets = targets.into_iter().map(|it| it.change(with_process)).collect();
    }
    targets
}

/// For another program as the second process: the other cases have none.
fn with_process(target: lockwell::conformance::Target) -> lockwell::conformance::Target {
    target.only(|case| case.needs.contains(&Need::Process))
}

/// This target with the cases of a usual run.
fn usual(target: lockwell::conformance::Target) -> lockwell::conformance::Target {
    if WITH_POLICY.contains(&target.name()) {
        return target;
    }
    let has_session = target.name() == WITH_SESSION;
    let is_deployment = DEPLOYMENTS.contains(&target.name());
    target.only(move |case| {
        if ALSO_POLICY.contains(&case.name) {
            return has_session;
        }
        if is_deployment {
            return OF_DEPLOYMENTS.contains(&case.subject);
        }
        !POLICY.contains(&case.subject) || NOT_POLICY.contains(&case.name)
    })
}

/// A name that is no case any more would change what runs.
pub(crate) fn policy_is_of_cases() -> Result<(), String> {
    let is_case = |name: &str| cases().iter().any(|case| case.name == name);
    let is_subject = |subject: &str| cases().iter().any(|case| case.subject == subject);
    let names = NOT_POLICY.into_iter().chain(ALSO_POLICY).filter(|name| !is_case(name));
    let subjects = POLICY.into_iter().chain(OF_DEPLOYMENTS).filter(|subject| !is_subject(subject));
    let unknown: Vec<_> = names.chain(subjects).collect();
    if unknown.is_empty() { Ok(()) } else { Err(format!("no such cases: {unknown:?}")) }
}

/// The targets on a release.
#[cfg(any(feature = "postgres", feature = "mysql", feature = "redis", feature = "zk", feature = "etcd"))]
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
        #[cfg(feature = "etcd")]
        testbed::Family::Etcd => etcd(release),
        _ => Vec::new(),
    };
    if release.is_fetched() {
        // The name of the release in the place of that of its kind.
        let renamed = |target: lockwell::conformance::Target| {
            let rest = ["redis", "mariadb", "postgres", "zookeeper", "etcd"]
                .into_iter()
                .find_map(|kind| target.name().strip_prefix(kind))
                .map_or_else(|| format!("_{}", target.name()), str::to_owned);
            target.named(format!("{}{rest}", release.name())).optional()
        };
        targets = targets.into_iter().map(|target| target.change(renamed)).collect();
    } else if choice == Choice::Fetched {
        targets.clear();
    }
    targets.into_iter().map(|target| Target { release: Some(release), ..target }).collect()
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
    let mut targets = vec![
        Target::new("redis", SCHEMES, redis::offers(), move || redis::one(release)),
        #[cfg(feature = "tls")]
        Target::new("redis_sentinel", SCHEMES, redis_sentinel::offers(), move || {
            redis_sentinel::start(release)
        }),
        #[cfg(feature = "tls")]
        Target::new("redis_cluster", SCHEMES, redis::offers(), move || redis_cluster::start(release)).change(
            move |target| {
                let with_link = |case: &Case| case.needs.contains(&Need::Link);
                target.one_each_for(with_link, move || redis_cluster::start_linked(release))
            },
        ),
        redlock("redlock3", &["redlock", "redlocks"], 3, Trouble::None),
        redlock("redlock5", &["redlock", "redlocks"], 5, Trouble::None),
        redlock("redlock5_two_dead", &["redlock"], 5, Trouble::Dead(2)),
        redlock("redlock5_black_hole", &["redlock"], 5, Trouble::BlackHole),
    ];
    targets.retain(|it| !release.is_redis_6() || it.inner.name() != "redis_cluster");
    targets
}

#[cfg(feature = "postgres")]
fn postgres(release: &'static Release) -> Vec<Target> {
    use super::databases;
    let schemes = &["postgres", "postgresql"];
    vec![
        Target::new("postgres", schemes, databases::offers(), move || databases::postgres(release, "")),
        Target::new("postgres_grace", schemes, databases::offers_of_grace(), move || {
            databases::postgres_grace(release, "?durability=grace&longest_ttl=1m")
        }),
        Target::new("postgres_pooled", schemes, databases::offers(), move || {
            databases::pooled(release, "?pooled=true")
        }),
        Target::new("postgres_behind", schemes, databases::offers(), move || databases::pooled(release, "")),
    ]
}

#[cfg(feature = "zk")]
fn zookeeper(release: &'static Release) -> Vec<Target> {
    use super::{ensembles, servers};
    vec![
        Target::new("zookeeper", &["zk"], servers::offers_of_majority(), move || ensembles::one(release)),
        Target::new("zookeeper_ensemble", &["zk"], servers::offers_of_three(), move || {
            ensembles::three(release)
        }),
    ]
}

#[cfg(feature = "etcd")]
fn etcd(release: &'static Release) -> Vec<Target> {
    use super::{etcd, servers};
    let schemes = &["etcd", "etcds"];
    vec![
        Target::new("etcd", schemes, servers::offers_of_majority(), move || etcd::one(release)),
        Target::new("etcd_cluster", schemes, servers::offers_of_three(), move || etcd::three(release)),
    ]
}

/// A folder in memory where there is one: the suite is about locks, not about disks.
#[cfg(any(
    feature = "sqlite-unbundled",
    feature = "postgres",
    feature = "mysql",
    feature = "redis",
    feature = "zk",
    feature = "etcd"
))]
pub(crate) fn quick_folder() -> std::path::PathBuf {
    let memory = std::path::Path::new("/dev/shm");
    if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() }
}
