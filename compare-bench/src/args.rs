//! The command line.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Parser, Subcommand};

use crate::measure::peer::GivenProgram;
use crate::measure::workload;
use crate::measure::workload::bench::Workload;
use crate::plan::Plan;
use crate::record::machine::QUIET;
use crate::target::kind::Kind;
use crate::target::server::Durability;

/// Measures the lock backends of lockwell: latency, throughput and hand-over, next to raw statements on the
/// same server.
///
/// Without arguments it measures the backends memory and `SQLite`, and starts temporary servers for the
/// others: Postgres, `MariaDB`, one Redis, five Redis for Redlock, one `ZooKeeper`, and a `ZooKeeper`
/// ensemble of three. This takes half an hour to an hour and a half. `--full` or `--backend` add Postgres with grace
/// periods, MySQL, Valkey, Redis Sentinel, Redis Cluster, Redlock on three servers, the leader of the
/// ensemble, and etcd, one member and three. The results are printed, and written to a file for `render` and
/// `diff`.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    #[command(flatten)]
    pub(crate) run: RunArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a report from result files: one HTML page without external files.
    Render(RenderArgs),
    /// List what became faster or slower between two runs on one machine. Differences within the confidence
    /// intervals are left out.
    Diff(DiffArgs),
    /// Test what each backend survives: worker processes take locks while processes, servers and connections
    /// are made to fail. Afterwards their records are checked for locks that two held at once, and for lost
    /// writes.
    Faults(faults::FaultsArgs),
    /// Fill the tables of figures in README.md and docs of this checkout in from the runs in
    /// `compare-bench/runs`.
    Figures(FiguresArgs),
}

/// What is shown.
#[derive(Debug, clap::Args)]
pub(crate) struct RenderArgs {
    /// The result files. Several are shown together, for example of runs on disk and on tmpfs, or with
    /// several delays. A file of `faults` fills the sections on what each backend survives.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// The file to write. An existing file is replaced.
    #[arg(long, short, value_name = "FILE", default_value = "report.html")]
    pub(crate) output: PathBuf,
}

#[derive(Debug, clap::Args)]
pub(crate) struct FiguresArgs {
    /// Write nothing, and fail if a page differs from the runs.
    #[arg(long)]
    pub(crate) check: bool,
}

/// Two runs.
#[derive(Debug, clap::Args)]
pub(crate) struct DiffArgs {
    /// The result file of the earlier run.
    pub(crate) before: PathBuf,

    /// The result file of the later run.
    pub(crate) after: PathBuf,

    /// End with exit status 1 if anything is slower by more than this, such as `5%`, outside of the
    /// confidence intervals.
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub(crate) fail_above: Option<f64>,

    /// Compare the runs even if their machines or conditions differ.
    #[arg(long)]
    pub(crate) force: bool,
}

/// `5%` or `5`, as a share.
fn percent(text: &str) -> Result<f64, String> {
    let number: f64 = text.trim_end_matches('%').trim().parse().map_err(|_| "not a percentage".to_owned())?;
    if number >= 0.0 && number.is_finite() { Ok(number / 100.0) } else { Err("not a percentage".to_owned()) }
}

/// What is measured, and how.
#[derive(Clone, Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
pub(crate) struct RunArgs {
    /// Measure fewer cases: about three minutes. `cargo xtask compare` also builds it in a
    /// part of the time then.
    #[arg(long)]
    quick: bool,

    /// Measure all cases, and for longer: 100 minutes, and half an hour more with `--peers`; up to three times as
    /// long while intervals are wide.
    #[arg(long, conflicts_with = "quick")]
    full: bool,

    /// Run every part for a moment. The figures mean nothing; for tests.
    #[arg(long, hide = true, conflicts_with_all = ["quick", "full"])]
    smoke: bool,

    /// Measure the server at this address, and start none. May be given several times. The names of the locks
    /// begin with `compare/`, those of other libraries with `compare_peers/`. The raw statements use a table
    /// or node `lockwell_compare_floor`, or keys `compare/floor/...`; faulty recipes use a table or node
    /// `lockwell_compare_contrast`, or keys `compare_contrast/...`; `--peers` makes a folder `FILE.flock`
    /// beside a file of `SQLite`. All of these are removed at the end. What lockwell keeps for its locks
    /// stays as for any lock, such as a row in SQL for a day.
    #[arg(long, value_name = "URL", conflicts_with_all = ["backend", "tmpfs"])]
    pub(crate) url: Vec<String>,

    /// Measure only these backends, separated by commas [default: see above].
    #[arg(long, value_enum, value_delimiter = ',')]
    backend: Vec<Kind>,

    /// Run only these workloads, separated by commas. `--list` describes them.
    #[arg(long, value_name = "WORKLOAD", value_delimiter = ',', value_parser = workload_names())]
    only: Vec<String>,

    /// Keep the data of the servers in /dev/shm, so that the disk is not measured.
    #[arg(long)]
    pub(crate) tmpfs: bool,

    /// What a commit of the servers waits for. It does not change `SQLite`, whose backend decides by itself:
    /// where the host allows it, grants do not wait for the disk.
    #[arg(long, value_enum, default_value_t, conflicts_with = "url")]
    pub(crate) durability: Durability,

    /// Delay all data to and from the servers by this time each way, such as `5ms`. Then the number of round
    /// trips decides, and the load of this machine hardly matters.
    #[arg(long, value_name = "TIME", default_value = "0s", conflicts_with = "url")]
    pub(crate) delay: humantime::Duration,

    /// Make each sync of the servers' files, and of `SQLite`, take longer by this time, such as `3ms`, as on
    /// the disks of most clouds. Needs Linux and a C compiler. etcd cannot be measured so: it makes system
    /// calls without the C library.
    #[arg(long, value_name = "TIME", default_value = "0s", conflicts_with_all = ["url", "tmpfs"])]
    pub(crate) sync_delay: humantime::Duration,

    /// Measure other lock libraries as well, where there are any for the backend: rslock, node-redlock and
    /// distributed-lock for Redis and Redlock, redis-py for Redis, distributed-lock and advisory locks for
    /// Postgres, `GET_LOCK` for MySQL and `MariaDB`, flock for `SQLite`, Curator and kazoo for `ZooKeeper`,
    /// etcdctl and etcd-client for etcd. Builds them first. Those whose tools are not installed are left out.
    #[arg(long)]
    pub(crate) peers: bool,

    /// Measure a program of your own as well, on each backend of the run. The words of its command have
    /// spaces between them. compare-bench/README.md says what the program reads and answers. May be given
    /// several times.
    #[arg(long, value_name = "NAME=COMMAND")]
    pub(crate) peer: Vec<GivenProgram>,

    /// Measure common but faulty recipes as well: a lock node without a queue on `ZooKeeper`, SETNX with a
    /// time in the value on Redis, rows that are inserted and deleted in SQL. Included in `--full`.
    #[arg(long)]
    contrast: bool,

    /// Measure although the load of this machine is 1.5 for each core or more. Otherwise a run waits for up to
    /// five minutes until it is lower, and is refused then, but for `--quick`. The file has the load.
    #[arg(long)]
    busy: bool,

    /// The file for the results [default: `results/DATE-HOST.json`]. An existing file is not overwritten.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// Continue a run that was stopped, with its options: the run of this file, or the newest unfinished one
    /// in results/. An address with a password must be given again with `--url`.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "quick", "full", "backend", "only", "tmpfs", "durability", "delay", "sync_delay", "peers", "peer", "contrast"])]
    #[expect(clippy::option_option, reason = "as clap has options whose value may be left out")]
    pub(crate) resume: Option<Option<PathBuf>>,

    /// List the workloads and the backends, and end.
    #[arg(long)]
    pub(crate) list: bool,
}

fn workload_names() -> PossibleValuesParser {
    PossibleValuesParser::new(workload::ALL.map(Workload::name))
}

impl RunArgs {
    pub(crate) fn plan(&self) -> Plan {
        match (self.smoke, self.quick, self.full) {
            (true, _, _) => Plan::SMOKE,
            (_, true, _) => Plan::QUICK,
            (_, _, true) => Plan::FULL,
            _ => Plan::USUAL,
        }
    }

    /// What a quick run lacks, in one line, with a program of this profile.
    pub(crate) fn left_out(&self, profile: &str) -> Option<String> {
        let of_all = workload::ALL.iter().filter(|it| it.about().only_in_full).map(|it| it.name());
        let left_out: Vec<&str> = of_all.filter(|name| !self.only.iter().any(|only| only == name)).collect();
        let linked = if profile == "quick" { ", and link-time optimisation" } else { "" };
        let cases = left_out.join(", ");
        self.quick
            .then(|| format!("--quick leaves out: {cases}; most rounds, so that intervals are wider{linked}"))
    }

    /// Why nothing is measured on a machine with this load, if so. A quick run often follows its build.
    pub(crate) fn refuses(&self, load: f64) -> Option<String> {
        let is_refused = load >= QUIET && !(self.busy || self.quick || self.smoke);
        is_refused.then(|| {
            format!(
                "the load of this machine is {load:.2}: wait until it is below {QUIET}, or measure by --busy"
            )
        })
    }

    /// Whether common but faulty recipes are measured as well.
    pub(crate) fn contrasts(&self) -> bool {
        self.contrast || self.full
    }

    /// These arguments, of a run that is to be gone on with by the present ones.
    pub(crate) fn resumed(self, arguments: Vec<String>) -> Result<Self, clap::Error> {
        let words = std::iter::once("compare-bench".to_owned()).chain(arguments);
        let before = Args::try_parse_from(words)?.run;
        // The file does not have the passwords.
        let url = if self.url.is_empty() { before.url } else { self.url };
        Ok(Self { url, resume: self.resume, busy: self.busy || before.busy, ..before })
    }

    /// Whether other libraries and faulty recipes are measured on this backend. The full run has them on the
    /// usual backends.
    pub(crate) fn has_others(&self, kind: Option<Kind>) -> bool {
        !self.backend.is_empty() || kind.is_none_or(|kind| Kind::USUAL.contains(&kind))
    }

    /// The workloads to run. One that is asked for by name runs in the quick run, too.
    pub(crate) fn workloads(&self) -> Vec<&'static dyn Workload> {
        let plan = self.plan();
        let wanted = |workload: &&dyn Workload| {
            if self.only.is_empty() {
                plan.everything || !workload.about().only_in_full
            } else {
                self.only.iter().any(|name| name == workload.name())
            }
        };
        workload::ALL.into_iter().filter(wanted).collect()
    }

    pub(crate) fn kinds(&self) -> Vec<Kind> {
        let chosen = |kind: &Kind| {
            if self.backend.is_empty() {
                self.full || Kind::USUAL.contains(kind)
            } else {
                self.backend.contains(kind)
            }
        };
        Kind::all().iter().copied().filter(chosen).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> RunArgs {
        Args::try_parse_from(line.split(' ')).unwrap().run
    }

    fn names(line: &str) -> Vec<&'static str> {
        parsed(line).workloads().iter().map(|workload| workload.name()).collect()
    }

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Args::command().debug_assert();
    }

    #[test]
    fn the_crowd_comes_in_the_full_run_or_when_called() {
        assert_eq!(names("c --quick"), ["uncontended", "independent", "handoff"]);
        let all = [
            "uncontended",
            "independent",
            "arrivals",
            "handoff",
            "hot",
            "crowd",
            "readers",
            "semaphore",
            "herd",
            "holding",
            "recovery",
        ];
        assert_eq!(names("c"), all);
        assert_eq!(names("c --quick --only crowd"), ["crowd"]);
        assert!(Args::try_parse_from(["c", "--only", "nonsense"]).is_err());
    }

    #[test]
    fn a_quick_run_says_in_one_line_what_it_leaves_out() {
        let line = parsed("c --quick --only crowd").left_out("quick").unwrap();
        let all = "arrivals, hot, readers, semaphore, herd, holding, recovery; most rounds, so that intervals are wider, \
                   and link-time optimisation";
        assert_eq!(line, format!("--quick leaves out: {all}"));
        assert!(!parsed("c --quick").left_out("release").unwrap().contains("link-time"));
        assert_eq!(parsed("c").left_out("release"), None);
    }

    #[test]
    fn backends_are_chosen_by_name() {
        let args = parsed("c --backend redlock,mysql,zk,memory");
        assert_eq!(args.kinds(), [Kind::Memory, Kind::Mysql, Kind::Redlock, Kind::ZooKeeper]);
        assert_eq!(parsed("c").kinds(), Kind::USUAL);
        assert_eq!(parsed("c --full").kinds(), Kind::all());
        assert!(Args::try_parse_from(["c", "--url", "memory://", "--backend", "memory"]).is_err());
    }

    #[test]
    fn others_are_measured_on_the_usual_backends() {
        assert!(parsed("c --full --peers").has_others(Some(Kind::Redis)));
        assert!(!parsed("c --full --peers").has_others(Some(Kind::Valkey)));
        assert!(parsed("c --peers --backend valkey").has_others(Some(Kind::Valkey)));
        assert!(parsed("c --peers").has_others(None), "a server at an address");
        assert!(Args::try_parse_from(["c", "--peer", "mine"]).is_err(), "no command");
        assert!(Args::try_parse_from(["c", "--peer", "mine= "]).is_err(), "no command");
        assert_eq!(Args::try_parse_from(["c", "--peer", "mine=python3 mine.py"]).unwrap().run.peer.len(), 1);
    }

    #[test]
    fn a_busy_machine_is_refused_unless_told_otherwise() {
        assert_eq!(parsed("c --full").refuses(0.49), None);
        assert!(parsed("c --full").refuses(0.5).is_some_and(|reason| reason.contains("--busy")));
        for line in ["c --full --busy", "c --quick", "c --smoke"] {
            assert_eq!(parsed(line).refuses(7.0), None, "{line}");
        }
        assert_eq!(parsed("c --resume --busy").resumed(Vec::new()).unwrap().refuses(7.0), None);
    }

    #[test]
    fn percentages_are_read() {
        assert_eq!((percent("5%"), percent("2.5")), (Ok(0.05), Ok(0.025)));
        assert!(percent("x").is_err() && percent("-1%").is_err());
    }

    #[test]
    fn a_run_goes_on_with_its_own_options() {
        let args = parsed("c --resume results/x.json");
        assert_eq!(args.resume, Some(Some("results/x.json".into())));
        let stored = ["--quick", "--backend", "memory", "--delay=5ms"].map(str::to_owned);
        let resumed = args.resumed(stored.into()).unwrap();
        assert!(resumed.quick && resumed.resume.is_some() && resumed.delay.as_millis() == 5);
        assert_eq!(parsed("c --resume").resume, Some(None));
        let urls = parsed("c --resume --url redis://:x@h").resumed(vec!["--url".into(), "redis://h".into()]);
        assert_eq!(urls.unwrap().url, ["redis://:x@h"]);
        assert!(Args::try_parse_from(["c", "--resume", "--quick"]).is_err());
    }
}
