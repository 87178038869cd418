//! Streaming replicas of a Postgres.

use std::{fs, fs::OpenOptions, io::Write, net::SocketAddr};

use super::{Postgres, Programs};
use crate::{Error, Options, programs::missing};

impl Postgres {
    /// Starts a streaming replica of this server, which must be running. It is a copy of what this server has
    /// now, and follows it asynchronously.
    pub async fn start_standby(&self, options: &Options) -> Result<Self, Error> {
        let mut programs = Programs::find(options)?;
        if options.release_of(crate::Family::Postgres)?.is_fetched()
            || !programs.folder.join("pg_basebackup").is_file()
        {
            return Err(missing("pg_basebackup", "postgresql-client"));
        }
        programs.source = Some(self.addr());
        Self::start_programs(programs, options).await
    }

    /// Makes a replica a server of its own, which takes writes when this returns.
    pub async fn promote(&self) -> Result<(), Error> {
        self.admin_sql("SELECT pg_promote()").await.map(drop)
    }

    /// Waits until the replica has applied all that this server has written up to now.
    pub async fn wait_for_standby(&self, standby: &Self) -> Result<(), Error> {
        let written = self.admin_sql("SELECT pg_current_wal_lsn()").await?;
        let sql = format!("SELECT pg_last_wal_replay_lsn() >= '{}'", written.trim());
        while standby.admin_sql(&sql).await?.trim() != "t" {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// Lets this server, which must be stopped, follow another one from its next start on.
    pub fn follow(&self, primary: SocketAddr) -> Result<(), Error> {
        let data = self.folder().join("data");
        let settings = data.join("postgresql.auto.conf");
        let mut file = OpenOptions::new().append(true).open(&settings).map_err(Error::io("the settings"))?;
        writeln!(file, "primary_conninfo = '{}'", conninfo(primary)).map_err(Error::io("the settings"))?;
        fs::write(data.join("standby.signal"), "").map_err(Error::io("the signal"))
    }
}

fn conninfo(primary: SocketAddr) -> String {
    format!("host={} port={} user=postgres", primary.ip(), primary.port())
}
