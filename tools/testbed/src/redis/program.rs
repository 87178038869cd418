//! How `redis-server` is run, in each of its roles.

use std::net::SocketAddr;

use super::resp;
use crate::{
    Durability, Error, Options,
    kind::{Kind, Site},
    release::{Family, Release},
    wire::SHORT,
};

/// The name of the Unix socket. Relative to the data folder, in which the server works: a path in a deep
/// temporary folder would be too long for a socket.
pub(super) const SOCKET: &str = "redis.sock";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// A node by itself, master or replica.
    Single,
    /// One node of a cluster.
    ClusterNode,
    Sentinel,
}

#[derive(Debug)]
pub(super) struct Program {
    path: String,
    role: Role,
    /// Whether it has a port for TLS, which is the first of the others then.
    tls: bool,
    /// What its configuration file begins with. The server may rewrite the file, when told to, and then goes
    /// on with that after a restart. What it must not change is on its command line.
    pub(super) first_lines: String,
}

impl Program {
    pub(super) fn find(role: Role, options: &Options) -> Result<Self, Error> {
        let path = path(options.release_of(Family::Redis)?)?;
        Ok(Self { path, role, tls: options.tls.is_some(), first_lines: String::new() })
    }
}

/// The program of a release.
pub(super) fn path(release: &Release) -> Result<String, Error> {
    let program = if release.name().starts_with("valkey") { "valkey-server" } else { "redis-server" };
    release.program(program, "redis-server")
}

impl Kind for Program {
    fn name(&self) -> &'static str {
        match self.role {
            Role::Single => "redis",
            Role::ClusterNode => "redis-cluster",
            Role::Sentinel => "redis-sentinel",
        }
    }

    fn more_ports(&self) -> usize {
        // The default for the cluster's own connections is 10000 above the other, which may be taken.
        usize::from(self.tls) + usize::from(self.role == Role::ClusterNode)
    }

    fn prepare(&self, site: &Site<'_>) -> Result<Vec<Vec<String>>, Error> {
        site.write("redis.conf", &self.first_lines)?;
        Ok(vec![vec!["mkdir".to_owned(), site.path("data")?]])
    }

    fn command(&self, site: &Site<'_>, addr: SocketAddr) -> Result<Vec<String>, Error> {
        let (append, sync) = match site.options.durability {
            Durability::Disk => ("yes", "always"),
            Durability::OsCache => ("yes", "no"),
            Durability::Fast => ("no", "no"),
        };
        let port = addr.port().to_string();
        let data = site.path("data")?;
        let mut command = vec![self.path.clone(), site.path("redis.conf")?];
        if self.role == Role::Sentinel {
            command.push("--sentinel".to_owned());
        }
        let mut settings =
            vec![("port", &*port), ("bind", "127.0.0.1"), ("dir", &data), ("unixsocket", SOCKET)];
        if self.role != Role::Sentinel {
            settings.extend([("save", ""), ("appendonly", append), ("appendfsync", sync)]);
            // A replica does not have to wait for others that might want the same.
            settings.push(("repl-diskless-sync-delay", "0"));
        }
        let mut ports = site.more_ports.iter().map(ToString::to_string);
        let tls_port = site.options.tls.as_ref().and_then(|_| ports.next());
        if let (Some(port), Some([ca, certificate, key])) = (&tls_port, &site.options.tls) {
            settings.extend([("tls-port", &**port), ("tls-replication", "yes"), ("tls-auth-clients", "yes")]);
            let files = [("tls-ca-cert-file", ca), ("tls-cert-file", certificate), ("tls-key-file", key)];
            settings.extend(files.map(|(name, file)| (name, &**file)));
        }
        let bus = ports.next();
        if let Some(bus) = &bus {
            settings.push(("tls-cluster", if self.tls { "yes" } else { "no" }));
            settings.extend([
                ("cluster-enabled", "yes"),
                ("cluster-port", bus),
                ("cluster-node-timeout", "2000"),
            ]);
        }
        let extra = site.options.settings.iter().map(|(name, value)| (&**name, &**value));
        for (name, value) in settings.into_iter().chain(extra) {
            command.extend([format!("--{name}"), value.to_owned()]);
        }
        Ok(command)
    }

    fn ready(&self, _site: &Site<'_>, addr: SocketAddr, pid: u32, log: &str) -> bool {
        let Ok(answer) = resp::command(addr, None, &["INFO"], SHORT) else { return false };
        if ["-NOAUTH", "-NOPERM", "-ERR unknown command"].iter().any(|silent| answer.starts_with(silent)) {
            // It does not tell us who it is. But our process writes this only when the port is its own and it
            // has loaded its data.
            return log.contains("Ready to accept connections") || log.contains("Sentinel ID is");
        }
        // It answers while it is still loading its data, and says so.
        answer.contains(&format!("process_id:{pid}\r\n")) && !answer.contains("\r\nloading:1\r\n")
    }
}
