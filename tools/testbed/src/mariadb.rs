//! A throwaway `MariaDB` or MySQL.

mod daemon;
mod mysql;

pub(crate) use self::daemon::daemon;

use self::daemon::{PACKAGE, serving};
use std::net::SocketAddr;

use crate::{
    Error, Options, Release, Server, client,
    kind::{Kind, Site},
    programs::{find, is_root, text},
    release::Family,
    server::{blocking, is_a_server},
};

/// A throwaway `MariaDB`, or MySQL if its [release](Options::release) is one, with the administrator `root`,
/// who needs no password, and an empty database `lockwell`. It does not resolve host names: accounts are for
/// `'127.0.0.1'` or `'%'`.
///
/// It is a [`Server`], which see for killing, pausing and restarting.
#[derive(Debug, Clone)]
pub struct MariaDb {
    server: Server,
    client: String,
}

impl MariaDb {
    /// Whether the programs are on this machine, and if not, why.
    pub fn installed() -> Result<(), Error> {
        Programs::find(Release::choose(Family::MySql, None)?).map(drop)
    }

    /// Starts one with the default options.
    pub async fn start() -> Result<Self, Error> {
        Self::start_with(&Options::new()).await
    }

    /// Starts one. Settings are those of the command line, without the leading dashes.
    pub async fn start_with(options: &Options) -> Result<Self, Error> {
        let release = options.release_of(Family::MySql)?;
        if release.name().starts_with("mysql") {
            // MySQL takes this client as well.
            let (programs, client) = (mysql::Programs::find(release)?, find("mariadb", "mariadb-client")?);
            return Ok(Self { server: Server::start(programs, options).await?, client });
        }
        let programs = Programs::find(release)?;
        let client = programs.client.clone();
        Ok(Self { server: Server::start(programs, options).await?, client })
    }

    /// Its URL: user `root`, database `lockwell`.
    pub fn url(&self) -> String {
        self.url_via(self.addr())
    }

    /// The same URL through another address, that of a [`Proxy`](crate::Proxy).
    pub fn url_via(&self, addr: SocketAddr) -> String {
        format!("mysql://root@{addr}/lockwell")
    }

    /// Runs SQL as `root` in the database `lockwell` with the `mariadb` program, up to the first statement
    /// that fails. Returns the rows, one a line, columns separated by tabs.
    pub async fn admin_sql(&self, sql: &str) -> Result<String, Error> {
        let (client, port, sql) = (self.client.clone(), self.addr().port().to_string(), sql.to_owned());
        blocking(move || {
            let settings = ["--no-defaults", "--protocol=tcp", "-h127.0.0.1", "-P", &port, "-uroot"];
            let args = [&settings[..], &["--batch", "--raw", "--skip-column-names", "lockwell"]].concat();
            let run = || client::run(&client, &args, &sql);
            let is_hidden = |error: &Error| error.to_string().contains("Cannot convert string");
            let looks = if sql.starts_with("SELECT") { LOOKS } else { 1 };
            for _ in 1..looks {
                match run() {
                    Err(error) if is_hidden(&error) => (),
                    answer => return answer,
                }
            }
            run()
        })
        .await
    }
}

/// How often a look is tried: MySQL shows no list of statements while one has bytes in it that are no text.
const LOOKS: u32 = 100;

is_a_server!(MariaDb);

#[derive(Debug)]
struct Programs {
    install: String,
    daemon: String,
    client: String,
    /// Where the other files of a fetched release are.
    base: Option<String>,
}

impl Programs {
    fn find(release: &Release) -> Result<Self, Error> {
        Ok(Self {
            install: release.program("mariadb-install-db", PACKAGE)?,
            daemon: daemon(release)?,
            client: release.program("mariadb", "mariadb-client")?,
            base: release.root()?.map(|root| text(&root.join("usr"))).transpose()?,
        })
    }

    /// What the installation and the server have in common. A small log, since it is written out in full.
    fn common(&self, program: &str, site: &Site<'_>) -> Result<Vec<String>, Error> {
        let mut command = vec![
            program.to_owned(),
            // Must come first.
            "--no-defaults".to_owned(),
            format!("--datadir={}", site.path("data")?),
            // Not the folder of all: a server that starts removes the temporary tables that it finds.
            format!("--tmpdir={}", site.folder("tmp")?),
            "--skip-name-resolve".to_owned(),
            "--innodb-log-file-size=16M".to_owned(),
            "--innodb-buffer-pool-size=64M".to_owned(),
        ];
        command.extend(self.base.iter().map(|base| format!("--basedir={base}")));
        if is_root() {
            command.push("--user=root".to_owned());
        }
        Ok(command)
    }
}

impl Kind for Programs {
    fn name(&self) -> &'static str {
        "mariadb"
    }

    fn prepare(&self, site: &Site<'_>) -> Result<Vec<Vec<String>>, Error> {
        // Run at each start, before the first connection is taken.
        site.write("init.sql", "CREATE DATABASE IF NOT EXISTS lockwell;\n")?;
        let mut command = self.common(&self.install, site)?;
        command.extend(
            [
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
                "--innodb-flush-log-at-trx-commit=0",
            ]
            .map(str::to_owned),
        );
        Ok(vec![command])
    }

    fn makers(&self) -> Result<Vec<String>, Error> {
        Ok(vec![self.install.clone(), self.daemon.clone()])
    }

    fn command(&self, site: &Site<'_>, addr: SocketAddr) -> Result<Vec<String>, Error> {
        Ok([self.common(&self.daemon, site)?, serving(site, addr)?].concat())
    }

    fn ready(&self, site: &Site<'_>, _addr: SocketAddr, pid: u32, log: &str) -> bool {
        // The file is written once the port is bound, and a killed server leaves an old one behind.
        site.read("pid").trim() == pid.to_string() && log.contains("ready for connections")
    }
}
