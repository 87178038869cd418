//! Faults of sessions and transactions: databases, and the connections of Redis.

use std::time::Duration;

use futures_util::future::join_all;
use rand::RngExt;
use testbed::MariaDb;

use super::super::servers::{Node, failed};
use super::Stage;
use crate::error::{Error, Result};

/// So many strangers have transactions at once.
const STRANGERS: usize = 4;

/// How often a statement is sent to a server that loses connections while they are made.
const TRIES: u32 = 5;

/// `MariaDB` loses new connections while it kills others, or has just gone on after a stop.
async fn tried(server: &MariaDb, sql: &str) -> std::result::Result<String, testbed::Error> {
    let mut answer = server.admin_sql(sql).await;
    for _ in 1..TRIES {
        match &answer {
            Err(error) if error.to_string().contains("Lost connection") => (),
            _ => break,
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        answer = server.admin_sql(sql).await;
    }
    answer
}

/// The number that a server answers.
fn number(answer: &str) -> Result<u64> {
    let digits = answer.trim().trim_start_matches(':');
    digits.parse().map_err(|_| Error::failed(format!("{answer:?} is no number")))
}

impl Stage {
    /// Returns how many.
    pub(super) async fn kill_sessions(&self, node: u32) -> Result<u64> {
        match &self.servers.nodes[node as usize] {
            Node::Postgres(server) => {
                // Not this program's own, nor those of another fault.
                let sql = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                    WHERE application_name <> 'psql' AND backend_type = 'client backend'";
                number(&server.admin_sql(sql).await.map_err(failed)?)
            }
            Node::MariaDb(server) => {
                let sql = "SELECT id FROM information_schema.processlist
                    WHERE id <> connection_id() AND user = 'root'";
                let mut ended = 0;
                for id in tried(server, sql).await.map_err(failed)?.lines() {
                    ended += 1;
                    // It may have ended by itself.
                    if let Err(error) = tried(server, &format!("KILL {id}")).await
                        && !error.to_string().contains("Unknown thread")
                    {
                        return Err(failed(error));
                    }
                }
                Ok(ended)
            }
            Node::Redis(_) => self.kill_clients(node, "normal"),
            Node::ZooKeeper(_) | Node::Etcd(_) => Err(Error::failed("it has no such command")),
        }
    }

    /// Clients have other connections for that, where the server has such notifications. Returns how many.
    pub(super) async fn kill_listeners(&self, node: u32) -> Result<u64> {
        match &self.servers.nodes[node as usize] {
            Node::Postgres(server) => {
                let sql = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                    WHERE application_name <> 'psql' AND query ILIKE '%listen%'";
                number(&server.admin_sql(sql).await.map_err(failed)?)
            }
            Node::Redis(_) => self.kill_clients(node, "pubsub"),
            Node::MariaDb(_) | Node::ZooKeeper(_) | Node::Etcd(_) => {
                Err(Error::failed("it has no such connections"))
            }
        }
    }

    /// Ends the connections of this type of clients, and not those of sentinels. They ping a master on one
    /// and listen on another, and ping only while they have both: if one of them is ended again and again,
    /// the master is taken for dead, and its replica takes over. That is another scenario.
    fn kill_clients(&self, node: u32, of_type: &str) -> Result<u64> {
        if self.servers.sentinels.is_none() {
            return number(&self.redis(node, &["CLIENT", "KILL", "TYPE", of_type])?);
        }
        let mut ended = 0;
        let clients = self.redis(node, &["CLIENT", "LIST", "TYPE", of_type])?;
        let ours = clients.lines().filter(|line| !line.contains(" name=sentinel-"));
        for id in ours.filter_map(|line| line.strip_prefix("id=")?.split(' ').next()) {
            // One that has ended by itself is no error.
            self.redis(node, &["CLIENT", "KILL", "ID", id])?;
            ended += 1;
        }
        Ok(ended)
    }

    /// Somebody else's transaction has the rows for so long.
    pub(super) async fn rogue(&self, millis: u64) -> Result<()> {
        let seconds = Duration::from_millis(millis).as_secs_f64();
        let select =
            "BEGIN; SELECT count(*) FROM (SELECT 1 FROM lockwell_locks FOR UPDATE) AS rows_of_locks;";
        match &self.servers.nodes[0] {
            Node::Postgres(server) => {
                server.admin_sql(&format!("{select} SELECT pg_sleep({seconds}); ROLLBACK")).await
            }
            Node::MariaDb(server) => {
                let select = "BEGIN; SELECT name FROM lockwell_locks FOR UPDATE;";
                server.admin_sql(&format!("{select} SELECT sleep({seconds}); ROLLBACK")).await
            }
            _ => return Err(Error::failed("it is no database")),
        }
        .map_err(failed)
        .map(drop)
    }

    /// Strangers lock the rows of two locks each, in any order, again and again. The server ends some of
    /// them, or some of the clients' statements.
    pub(super) async fn deadlocks(&self, millis: u64) -> Result<()> {
        let end = tokio::time::Instant::now() + Duration::from_millis(millis);
        let done = join_all((0..STRANGERS).map(|_| self.stranger(end))).await;
        if done.into_iter().sum::<u32>() > 0 { Ok(()) } else { Err(Error::failed("no stranger got any row")) }
    }

    /// Returns how many transactions came to their end.
    async fn stranger(&self, end: tokio::time::Instant) -> u32 {
        let mut done = 0;
        while tokio::time::Instant::now() < end {
            let name = || &self.names[rand::rng().random_range(0..self.names.len())];
            let row =
                |name: &str| format!("SELECT token FROM lockwell_locks WHERE name = '{name}' FOR UPDATE;");
            let (first, second) = (row(name()), row(name()));
            let outcome = match &self.servers.nodes[0] {
                Node::Postgres(server) => {
                    server.admin_sql(&format!("BEGIN; {first} SELECT pg_sleep(0.02); {second} COMMIT")).await
                }
                Node::MariaDb(server) => {
                    server.admin_sql(&format!("BEGIN; {first} SELECT sleep(0.02); {second} COMMIT")).await
                }
                _ => return done,
            };
            // One that the server has ended to break a deadlock has failed, as is wanted.
            done += u32::from(outcome.is_ok());
        }
        done
    }
}
