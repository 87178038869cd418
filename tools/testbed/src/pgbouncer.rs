//! A throwaway pooler before a Postgres.

use std::net::SocketAddr;

use crate::{
    Error, Options, Postgres, Release, Server,
    kind::{Kind, Site},
    programs::is_root,
    release::Family,
    server::is_a_server,
};

/// A throwaway `PgBouncer` in transaction mode: each transaction is carried out on any of its few
/// connections.
///
/// It is a [`Server`], which see for killing, pausing and restarting. The Postgres behind it is another.
#[derive(Debug, Clone)]
pub struct PgBouncer {
    server: Server,
    postgres: Postgres,
}

impl PgBouncer {
    /// Whether the programs are on this machine, and if not, why.
    pub fn installed() -> Result<(), Error> {
        Postgres::installed().and_then(|()| find(&Options::new()).map(drop))
    }

    /// Starts one before this Postgres. Settings are those of the section `pgbouncer` of its file.
    pub async fn start_with(postgres: &Postgres, options: &Options) -> Result<Self, Error> {
        Self::start_as(postgres, options, Some("postgres")).await
    }

    /// The same, but each client has at the server the user that it names.
    pub async fn start_for_all(postgres: &Postgres, options: &Options) -> Result<Self, Error> {
        Self::start_as(postgres, options, None).await
    }

    async fn start_as(
        postgres: &Postgres,
        options: &Options,
        user: Option<&'static str>,
    ) -> Result<Self, Error> {
        let pooler = Pooler { program: find(options)?, upstream: postgres.addr(), user };
        Ok(Self { server: Server::start(pooler, options).await?, postgres: postgres.clone() })
    }

    /// The Postgres behind it.
    pub fn postgres(&self) -> &Postgres {
        &self.postgres
    }

    /// Its URL: user `postgres`, database `postgres`.
    pub fn url(&self) -> String {
        self.postgres.url_via(self.addr())
    }
}

is_a_server!(PgBouncer);

fn find(options: &Options) -> Result<String, Error> {
    let release = options.release_of(Family::PgBouncer)?;
    // It becomes nobody after its start, and opens no program or library then.
    program(release)
}

/// The program of a release.
pub(crate) fn program(release: &Release) -> Result<String, Error> {
    release.program("pgbouncer", "pgbouncer")
}

#[derive(Debug)]
struct Pooler {
    program: String,
    upstream: SocketAddr,
    /// The user of all clients at the server; `None`: the user that each names.
    user: Option<&'static str>,
}

impl Kind for Pooler {
    fn name(&self) -> &'static str {
        "pgbouncer"
    }

    fn prepare(&self, _: &Site<'_>) -> Result<Vec<Vec<String>>, Error> {
        Ok(Vec::new())
    }

    fn command(&self, site: &Site<'_>, addr: SocketAddr) -> Result<Vec<String>, Error> {
        let (host, port) = (self.upstream.ip(), self.upstream.port());
        let user = self.user.map_or_else(String::new, |user| format!(" user={user}"));
        let mut file = format!("[databases]\n* = host={host} port={port}{user}\n[pgbouncer]\n");
        let port = format!("listen_port={}", addr.port());
        let settings = [
            "listen_addr=127.0.0.1",
            &port,
            // Nobody is asked for a password, as at the server itself.
            if self.user.is_some() { "auth_type=any" } else { "auth_type=trust" },
            "pool_mode=transaction",
            // Few, so that clients do share them.
            "default_pool_size=8",
            "max_client_conn=1000",
            // Seconds. The server may be restarted.
            "server_login_retry=1",
            "unix_socket_dir=",
        ];
        let extra = site.options.settings.iter().map(|(name, value)| format!("{name}={value}"));
        for setting in settings.into_iter().map(str::to_owned).chain(extra) {
            file.push_str(&setting);
            file.push('\n');
        }
        if is_root() {
            file.push_str("user=nobody\n");
        }
        if self.user.is_none() {
            // Whoever is not in the list is looked up at the server.
            file.push_str("auth_user=postgres\nauth_query=SELECT $1, ''\n");
        }
        site.write("pgbouncer.ini", &file)?;
        Ok(vec![self.program.clone(), site.path("pgbouncer.ini")?])
    }

    fn ready(&self, _: &Site<'_>, _: SocketAddr, _: u32, log: &str) -> bool {
        log.contains("process up")
    }
}
