//! ZooKeeper for the suite, with every fault that testbed can inject.

use std::fmt;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use backend_zk::ZkLock;
use lockcore::conformance::{Case, Harness, Link, Need, Server, Way};
use lockcore::{Locks, Result, async_trait};
use testbed::{Direction, Durability, Options, Proxy, ZooKeeper, ZooKeeperEnsemble};

/// A harness, or why there is none.
pub(crate) type Started = Result<Arc<dyn Harness>, Missing>;

/// Why there is no server.
#[derive(Clone, Debug)]
pub(crate) enum Missing {
    NotInstalled(String),
    Broken(String),
}

impl From<testbed::Error> for Missing {
    fn from(error: testbed::Error) -> Self {
        if error.is_not_installed() {
            Self::NotInstalled(error.to_string())
        } else {
            Self::Broken(error.to_string())
        }
    }
}

type Starting = Pin<Box<dyn Future<Output = Started> + Send>>;

/// One kind of service and recipe that the suite runs on.
pub(crate) struct Target {
    pub(crate) name: &'static str,
    offers: Vec<Need>,
    /// Cases that this recipe cannot pass, by a part of their names.
    only: &'static [&'static str],
    start: fn() -> Starting,
    ordinary: OnceLock<Started>,
    disturbed: OnceLock<Started>,
    pub(crate) turn: Mutex<()>,
}

impl Target {
    fn new(
        name: &'static str,
        offers: Vec<Need>,
        only: &'static [&'static str],
        start: fn() -> Starting,
    ) -> Self {
        let (ordinary, disturbed) = (OnceLock::new(), OnceLock::new());
        Self { name, offers, only, start, ordinary, disturbed, turn: Mutex::default() }
    }

    pub(crate) fn runs(&self, case: &Case) -> bool {
        case.runs_with(&self.offers)
            && (self.only.is_empty() || self.only.iter().any(|part| case.name.contains(part)))
    }

    pub(crate) fn harness(&self, disturbs: bool) -> Started {
        let place = if disturbs { &self.disturbed } else { &self.ordinary };
        place
            .get_or_init(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime.map_err(|error| Missing::Broken(error.to_string()))?.block_on((self.start)())
            })
            .clone()
    }
}

const QUEUE: [Need; 8] = [
    Need::Shared,
    Need::Permits,
    Need::Fencing,
    Need::Fifo,
    Need::Durable,
    Need::Process,
    Need::Server,
    Need::Link,
];

pub(crate) fn targets() -> Vec<Target> {
    vec![
        Target::new("zookeeper", QUEUE.to_vec(), &[], || Box::pin(single(""))),
        Target::new("zookeeper-ensemble", QUEUE.to_vec(), &[], || Box::pin(ensemble())),
        Target::new(
            "zookeeper-simple",
            vec![Need::Fencing, Need::Durable, Need::Process, Need::Server, Need::Link],
            // What does not count those who wait.
            &[
                "a_busy_hour",
                "a_counter",
                "killed_holder_frees_the_lock_within",
                "repeated",
                "tokens_rise_over",
                "try_now",
            ],
            || Box::pin(single("?recipe=simple")),
        ),
    ]
}

pub(crate) async fn connect(url: String) -> Result<Locks> {
    Ok(Locks::new(Arc::new(ZkLock::connect(&url.parse()?).await?)))
}

/// The suite works with leases from a second to a minute, and measures how soon they end: so a short tick, which is the
/// grain of the server's time, and no upper bound in the way.
pub(crate) fn options() -> Options {
    let memory = std::path::Path::new("/dev/shm");
    let folder = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    Options::new()
        .durability(Durability::OsCache)
        .parent(folder)
        .setting("tickTime", "200")
        .setting("maxSessionTimeout", "90000")
}

async fn single(suffix: &'static str) -> Started {
    let server = ZooKeeper::start_with(&options()).await?;
    Ok(Arc::new(Service { servers: vec![server], ensemble: None, suffix }))
}

/// Three servers. They may be silent to each other for a while, since the machine may be busy.
async fn ensemble() -> Started {
    let options = options().setting("syncLimit", "10").setting("initLimit", "50");
    let ensemble = ZooKeeperEnsemble::start(3, &options).await?;
    Ok(Arc::new(Service { servers: ensemble.servers().to_vec(), ensemble: Some(ensemble), suffix: "" }))
}

struct Service {
    servers: Vec<ZooKeeper>,
    ensemble: Option<ZooKeeperEnsemble>,
    suffix: &'static str,
}

impl Service {
    fn url(&self) -> String {
        self.url_via(&self.servers.iter().map(|server| server.addr()).collect::<Vec<_>>())
    }

    fn url_via(&self, addresses: &[SocketAddr]) -> String {
        let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
        format!("zk://{}{}", addresses.join(","), self.suffix)
    }

    async fn start_those_that_are_down(&self) {
        let mut starting = Vec::new();
        for server in self.servers.iter().filter(|server| server.pid().is_none()) {
            let server = server.clone();
            starting.push(tokio::spawn(async move { server.restart().await }));
        }
        for start in starting {
            start.await.expect("no panic").expect("the server starts again");
        }
        if let Some(ensemble) = &self.ensemble {
            ensemble.ready().await.expect("a leader and its followers");
        }
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Service").field(&self.url()).finish()
    }
}

#[async_trait]
impl Harness for Service {
    fn offers(&self) -> Vec<Need> {
        QUEUE.to_vec()
    }

    async fn client(&self) -> Result<Locks> {
        connect(self.url()).await
    }

    fn address(&self) -> Option<String> {
        Some(self.url())
    }

    fn server(&self) -> Option<&dyn Server> {
        Some(self)
    }

    async fn link(&self) -> Option<Box<dyn Link>> {
        let mut proxies = Vec::new();
        for server in &self.servers {
            proxies.push(Proxy::start(server.addr()).await.expect("a proxy"));
        }
        let url = self.url_via(&proxies.iter().map(Proxy::addr).collect::<Vec<_>>());
        Some(Box::new(Cables { proxies, url }))
    }
}

#[async_trait]
impl Server for Service {
    async fn pause(&self) {
        self.servers.iter().for_each(|server| server.pause().expect("the server runs"));
    }

    async fn resume(&self) {
        for server in self.servers.iter().filter(|server| server.pid().is_some()) {
            server.resume().expect("the server runs");
        }
        self.start_those_that_are_down().await;
    }

    async fn restart(&self) {
        for server in &self.servers {
            server.stop().await.expect("the server ends");
        }
        self.start_those_that_are_down().await;
    }
}

/// A proxy before each server, and the address that they make.
#[derive(Debug)]
struct Cables {
    proxies: Vec<Proxy>,
    url: String,
}

#[async_trait]
impl Link for Cables {
    async fn client(&self) -> Result<Locks> {
        connect(self.url.clone()).await
    }

    fn blackhole(&self, way: Way) {
        let direction = match way {
            Way::ToServer => Direction::ToServer,
            Way::ToClient => Direction::ToClient,
            Way::Both => Direction::Both,
        };
        self.proxies.iter().for_each(|proxy| proxy.blackhole(direction));
    }

    fn cut(&self) {
        self.proxies.iter().for_each(Proxy::cut);
    }

    fn delay(&self, each_way: Duration) {
        self.proxies.iter().for_each(|proxy| proxy.delay(each_way));
    }

    fn drop_reply(&self, k: u64) {
        self.proxies.iter().for_each(|proxy| proxy.drop_reply(k));
    }

    fn dropped_replies(&self) -> u64 {
        self.proxies.iter().map(Proxy::dropped_replies).sum()
    }

    fn heal(&self) {
        self.proxies.iter().for_each(Proxy::heal);
    }
}
