//! The command line.

use std::path::PathBuf;

use clap::Parser;
use clap::builder::PossibleValuesParser;

use crate::plan::Plan;
use crate::server::Durability;
use crate::target::Kind;
use crate::workload::{self, Workload};

/// Compares the lock backends of lockwell on the same work, beside raw statements on the same server.
///
/// Without arguments it compares memory, `SQLite`, and throwaway Postgres, `MariaDB`, Redis and `ZooKeeper` servers that
/// it starts itself: one Redis alone and five for Redlock, one `ZooKeeper` alone and an ensemble of three.
#[derive(Debug, Parser)]
#[command(version)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
pub(crate) struct Args {
    /// End within three minutes instead of about eighteen.
    #[arg(long)]
    quick: bool,

    /// Run every part for a moment. The figures mean nothing; for tests.
    #[arg(long, hide = true, conflicts_with = "quick")]
    smoke: bool,

    /// Measure this server instead of starting any. May be given several times.
    #[arg(long, value_name = "URL", conflicts_with_all = ["backend", "tmpfs"])]
    pub(crate) url: Vec<String>,

    /// Only these backends.
    #[arg(long, value_enum, value_delimiter = ',')]
    backend: Vec<Kind>,

    /// Only these workloads.
    #[arg(long, value_name = "WORKLOAD", value_delimiter = ',', value_parser = workload_names())]
    only: Vec<String>,

    /// Keep the data in /dev/shm, so that round trips rather than disks are measured.
    #[arg(long)]
    pub(crate) tmpfs: bool,

    /// What a commit waits for. `SQLite` waits for the disk whatever this says, since the backend sets that itself.
    #[arg(long, value_enum, default_value_t, conflicts_with = "url")]
    pub(crate) durability: Durability,

    /// Put a long line before each server, on which everything takes so long each way. Then round trips are counted,
    /// whatever else this machine does.
    #[arg(long, value_name = "TIME", default_value = "0s", conflicts_with = "url")]
    pub(crate) delay: humantime::Duration,

    /// Measure other lock libraries beside lockwell, where there is one for the backend: rslock for Redis,
    /// distributed-lock for Redis and Postgres, Curator and kazoo for `ZooKeeper`. Builds them first; what is not installed is left out.
    #[arg(long)]
    pub(crate) peers: bool,

    /// Where the results go, for machines.
    #[arg(long, value_name = "FILE", default_value = "results.json")]
    pub(crate) json: PathBuf,

    /// List workloads and backends, and end.
    #[arg(long)]
    pub(crate) list: bool,
}

fn workload_names() -> PossibleValuesParser {
    PossibleValuesParser::new(workload::ALL.map(Workload::name))
}

impl Args {
    pub(crate) fn plan(&self) -> Plan {
        match (self.smoke, self.quick) {
            (true, _) => Plan::SMOKE,
            (_, true) => Plan::QUICK,
            _ => Plan::FULL,
        }
    }

    /// The workloads to run. One that is asked for by name runs in the quick run, too.
    pub(crate) fn workloads(&self) -> Vec<&'static dyn Workload> {
        let plan = self.plan();
        let wanted = |workload: &&dyn Workload| {
            if self.only.is_empty() {
                plan.everything || !workload.only_in_full()
            } else {
                self.only.iter().any(|name| name == workload.name())
            }
        };
        workload::ALL.into_iter().filter(wanted).collect()
    }

    pub(crate) fn kinds(&self) -> Vec<Kind> {
        let wanted = |kind: &Kind| self.backend.is_empty() || self.backend.contains(kind);
        Kind::ALL.into_iter().filter(wanted).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(line: &str) -> Vec<&'static str> {
        let args = Args::try_parse_from(line.split(' ')).unwrap();
        args.workloads().iter().map(|workload| workload.name()).collect()
    }

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Args::command().debug_assert();
    }

    #[test]
    fn the_crowd_comes_in_the_full_run_or_when_called() {
        assert_eq!(names("c --quick"), ["uncontended", "independent", "handoff"]);
        assert_eq!(names("c"), ["uncontended", "independent", "handoff", "crowd"]);
        assert_eq!(names("c --quick --only crowd"), ["crowd"]);
        assert!(Args::try_parse_from(["c", "--only", "nonsense"]).is_err());
    }

    #[test]
    fn backends_are_chosen_by_name() {
        let args = Args::try_parse_from(["c", "--backend", "redlock,mysql,zk,memory"]).unwrap();
        assert_eq!(args.kinds(), [Kind::Memory, Kind::Mariadb, Kind::Redlock, Kind::ZooKeeper]);
        assert!(Args::try_parse_from(["c", "--url", "memory://", "--backend", "memory"]).is_err());
    }
}
