//! Throwaway real servers and fault injection for the tests of lockwell.
//!
//! Each server runs on a free loopback port in a temporary folder. It takes connections when `start` returns,
//! and is gone, with its folder, when its last handle is dropped or this process ends in whatever way,
//! SIGKILL included. As root and as an ordinary user, without containers.
//!
//! ```no_run
//! use std::time::Duration;
//! use testbed::{Direction, Durability, Options, Postgres, Proxy};
//!
//! # async fn example() -> Result<(), testbed::Error> {
//! let options = Options::new().durability(Durability::OsCache).parent("/dev/shm");
//! let postgres = Postgres::start_with(&options).await?;
//! postgres.admin_sql("CREATE TABLE t (id int)").await?;
//!
//! // Clients that connect to `url` go through the proxy.
//! let proxy = Proxy::start(postgres.addr()).await?;
//! let url = postgres.url_via(proxy.addr());
//! proxy.delay(Duration::from_millis(20));
//! proxy.blackhole(Direction::ToClient);
//! proxy.heal();
//!
//! postgres.pause()?;
//! postgres.resume()?;
//! postgres.kill()?;
//! postgres.restart().await?;
//! # Ok(())
//! # }
//! ```

mod certificates;
mod checkout;
mod client;
mod error;
mod etcd;
mod group;
mod hang;
#[cfg(feature = "conformance")]
mod harness;
mod kept;
mod kind;
mod lacking;
mod mariadb;
mod names;
mod options;
mod pgbouncer;
mod port;
mod postgres;
mod preload;
mod proctree;
mod programs;
mod redis;
mod release;
mod server;
mod supervisor;
mod wire;
mod zookeeper;

pub use lockwell_proxy::{Direction, Proxy};

pub use self::{
    certificates::Certificates,
    checkout::Checkout,
    error::Error,
    etcd::{Etcd, cluster::EtcdCluster},
    hang::HungSyncs,
    lacking::{cannot_run, if_fetched, if_installed, is_installed, lacks, not_run, servers_required},
    mariadb::MariaDb,
    names::{addresses_of, hung, name_of},
    options::{Durability, Options},
    pgbouncer::PgBouncer,
    postgres::Postgres,
    preload::{preloaded, preloaded_syncs},
    proctree::kill as kill_tree,
    redis::{Redis, cluster::RedisCluster, sentinel::RedisSentinel},
    release::{Family, Release},
    server::Server,
    zookeeper::{ZooKeeper, ensemble::ZooKeeperEnsemble},
};
