//! A throwaway Postgres.

mod standby;

use std::{fs, net::SocketAddr, os::unix::fs::chown, path::PathBuf};

use rustix::process::Signal;

use crate::{
    Durability, Error, Options, Release, Server, client,
    kind::{Kind, Site},
    programs::{self, Nobody, missing, postgres_folder, text},
    release::Family,
    server::{blocking, is_a_server},
};

const PACKAGE: &str = "postgresql";

/// A throwaway Postgres with one superuser `postgres`, who needs no password, and the database `postgres`.
///
/// It is a [`Server`], which see for killing, pausing and restarting.
#[derive(Debug, Clone)]
pub struct Postgres {
    server: Server,
    psql: String,
}

impl Postgres {
    /// Whether the programs are on this machine, and if not, why.
    pub fn installed() -> Result<(), Error> {
        Programs::find(&Options::new()).map(drop)
    }

    /// Starts one with the default options.
    pub async fn start() -> Result<Self, Error> {
        Self::start_with(&Options::new()).await
    }

    /// Starts one. Settings are those of `postgresql.conf`.
    pub async fn start_with(options: &Options) -> Result<Self, Error> {
        Self::start_programs(Programs::find(options)?, options).await
    }

    async fn start_programs(programs: Programs, options: &Options) -> Result<Self, Error> {
        let psql = programs.path("psql")?;
        Ok(Self { server: Server::start(programs, options).await?, psql })
    }

    /// Its URL: user `postgres`, database `postgres`.
    pub fn url(&self) -> String {
        self.url_via(self.addr())
    }

    /// The same URL through another address, that of a [`Proxy`](crate::Proxy).
    pub fn url_via(&self, addr: SocketAddr) -> String {
        format!("postgres://postgres@{addr}/postgres")
    }

    /// Runs SQL as the superuser with `psql`, each statement in a transaction of its own, up to the first
    /// that fails. Returns the rows, one a line, columns separated by `|`.
    pub async fn admin_sql(&self, sql: &str) -> Result<String, Error> {
        let (psql, port, sql) = (self.psql.clone(), self.addr().port().to_string(), sql.to_owned());
        blocking(move || {
            let settings = ["-XqAt", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-p", &port];
            let args = [&settings[..], &["-U", "postgres", "-d", "postgres", "-f", "-"]].concat();
            client::run(&psql, &args, &sql)
        })
        .await
    }
}

is_a_server!(Postgres);

#[derive(Debug)]
struct Programs {
    folder: PathBuf,
    nobody: Option<Nobody>,
    /// The server of which it is made a replica.
    source: Option<SocketAddr>,
}

impl Programs {
    fn find(options: &Options) -> Result<Self, Error> {
        let release = options.release_of(Family::Postgres)?;
        release.open_to_nobody()?;
        let folder = folder(release)?;
        for program in ["initdb", "postgres", "psql"] {
            if !folder.join(program).is_file() {
                return Err(missing(program, PACKAGE));
            }
        }
        let nobody = Nobody::if_root();
        if nobody.is_some() {
            programs::find("setpriv", "util-linux")?;
        }
        Ok(Self { folder, nobody, source: None })
    }

    fn path(&self, program: &str) -> Result<String, Error> {
        text(&self.folder.join(program))
    }

    /// A command line under another user, if we are root.
    fn command(&self, program: &str, args: &[&str]) -> Result<Vec<String>, Error> {
        let mut command = Vec::new();
        if let Some(Nobody { uid, gid }) = self.nobody {
            let ids = [format!("--reuid={uid}"), format!("--regid={gid}")];
            command.push("setpriv".to_owned());
            command.extend(ids);
            command.extend(["--clear-groups".to_owned(), "--".to_owned()]);
        }
        command.push(self.path(program)?);
        command.extend(args.iter().map(ToString::to_string));
        Ok(command)
    }
}

/// Where the programs of a release are.
fn folder(release: &Release) -> Result<PathBuf, Error> {
    if !release.is_fetched() {
        return postgres_folder();
    }
    let daemon = PathBuf::from(release.program("postgres", PACKAGE)?);
    Ok(daemon.parent().unwrap_or(&daemon).to_owned())
}

/// The server's program of a release.
pub(crate) fn daemon(release: &Release) -> Result<String, Error> {
    text(&folder(release)?.join("postgres"))
}

impl Kind for Programs {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn prepare(&self, site: &Site<'_>) -> Result<Vec<Vec<String>>, Error> {
        let data = site.path("data")?;
        fs::create_dir(&data).map_err(Error::io(&data))?;
        if let Some(Nobody { uid, gid }) = self.nobody {
            // The user nobody may enter our folder and owns the data, but cannot change the scripts that we
            // run.
            let open = std::os::unix::fs::PermissionsExt::from_mode(0o711);
            fs::set_permissions(site.folder, open).map_err(Error::io(&data))?;
            chown(&data, Some(uid), Some(gid)).map_err(Error::io(&data))?;
        }
        if let Some(source) = self.source {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
            fs::set_permissions(&data, mode).map_err(Error::io(&data))?;
            let (host, port) = (source.ip().to_string(), source.port().to_string());
            let args = [&copy(&data, &host, &port)[..], &["-U", "postgres"]].concat();
            return Ok(vec![self.command("pg_basebackup", &args)?]);
        }
        let args = ["-D", &data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8"];
        let args = [&args[..], &["--no-sync", "--no-instructions"]].concat();
        Ok(vec![self.command("initdb", &args)?])
    }

    fn makers(&self) -> Result<Vec<String>, Error> {
        if self.source.is_some() {
            return Ok(Vec::new());
        }
        Ok(vec![self.path("initdb")?, self.path("postgres")?])
    }

    fn command(&self, site: &Site<'_>, addr: SocketAddr) -> Result<Vec<String>, Error> {
        let mut settings = vec![
            "listen_addresses=127.0.0.1",
            // A path in a deep temporary folder would be too long for a socket.
            "unix_socket_directories=",
            "max_connections=300",
            // In files of the data folder, which we remove: a killed server leaves posix memory behind.
            "dynamic_shared_memory_type=mmap",
        ];
        match site.options.durability {
            Durability::Disk => {}
            Durability::OsCache => settings.extend(["fsync=off", "full_page_writes=off"]),
            Durability::Fast => {
                settings.extend(["fsync=off", "full_page_writes=off", "synchronous_commit=off"]);
            }
        }
        let mut command =
            self.command("postgres", &["-D", &site.path("data")?, "-p", &addr.port().to_string()])?;
        let extra = site.options.settings.iter().map(|(name, value)| format!("{name}={value}"));
        for setting in settings.into_iter().map(str::to_owned).chain(extra) {
            command.extend(["-c".to_owned(), setting]);
        }
        Ok(command)
    }

    fn ready(&self, site: &Site<'_>, addr: SocketAddr, pid: u32, _log: &str) -> bool {
        // The lines are: process id, folder, start time, port, socket folder, address, memory, state.
        let file = site.read("data/postmaster.pid");
        let lines: Vec<&str> = file.lines().map(str::trim).collect();
        lines.first() == Some(&pid.to_string().as_str())
            && lines.get(3) == Some(&addr.port().to_string().as_str())
            && lines.get(7) == Some(&"ready")
    }

    /// Fast shutdown: does not wait for the clients to leave.
    fn stop_signal(&self) -> Signal {
        Signal::INT
    }

    fn hooks(&self) -> &'static str {
        include_str!("postgres_hooks.sh")
    }
}

/// The arguments that copy a running server.
fn copy<'a>(data: &'a str, host: &'a str, port: &'a str) -> [&'a str; 12] {
    ["-D", data, "-R", "-X", "stream", "-c", "fast", "--no-sync", "-h", host, "-p", port]
}
