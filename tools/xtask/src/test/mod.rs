//! `cargo xtask test`: all tests.
//!
//! `cargo nextest` runs each test in a process of its own, by `.config/nextest.toml`. Programs whose tests share
//! servers run as one process each, beside it.

mod alone;
mod deep;
mod missing;
mod nextest;
mod run;
mod shared;

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode};
use std::thread;

use testbed::Family;

use self::missing::remarks;
use self::run::{Outcome, Run, Servers};
use self::shared::Shared;
use crate::install::{is_told, is_tool, provide};
use crate::packages::{SERVERS, TOOLS};
use crate::shell::{Result, line, root};

/// How many cases of the conformance suite run at a time if they run on all servers. As many as it chooses
/// itself leave the processors idle half of the time.
const ON_ALL_SERVERS: &str = "--test-threads=12";

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Keep this number of processors busy while the tests run.
    #[arg(long, value_name = "N", default_value_t = 0)]
    busy: usize,
    /// Which servers to test with. `usual`: those that are installed, and MySQL. `fetched`: only
    /// releases that are downloaded, in all setups. `all`: both, in all setups.
    #[arg(long, value_enum, default_value_t = Servers::Usual)]
    servers: Servers,
    /// Run what is too long for every run: all steps of `.ci/run`, all servers in all setups, the models with
    /// optimisation, and all tests beside busy loops.
    #[arg(long, conflicts_with_all = ["busy", "servers"])]
    deep: bool,
    /// Install and download what is missing, without asking.
    #[arg(long)]
    install: bool,
    /// Arguments for `cargo nextest run`. Or `--test PROGRAM`, and arguments for it after `--`, if its tests
    /// share servers: `conformance` or `sql`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    args: Vec<String>,
}

pub(crate) fn run(options: Options) -> Result<ExitCode> {
    let Options { busy, servers, deep, install, mut args } = options;
    let told = is_told(&mut args) || install;
    let needed = if deep { Servers::All } else { servers };
    let mut remarks = provide(SERVERS.iter().chain(&TOOLS), needed.needed(), true, told);
    if deep {
        return deep::run();
    }
    needs_nextest()?;
    let folder = root().join("target/xtask").join(format!("run-{}", std::process::id()));
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let run = Run { servers, folder };
    let _loops = Busy::start(busy)?;
    let outcomes = run.all(&args)?;
    remarks.extend(run.remarks());
    let is_well = alone::finish(outcomes, remarks)?;
    if is_well {
        fs::remove_dir_all(&run.folder).map_err(|error| format!("{}: {error}", run.folder.display()))?;
        return Ok(ExitCode::SUCCESS);
    }
    println!("what the programs have written is in {}", run.folder.display());
    Ok(ExitCode::FAILURE)
}

pub(crate) fn install() -> Result<ExitCode> {
    for remark in provide(SERVERS.iter().chain(&TOOLS), Servers::Usual.needed(), true, true) {
        println!("{remark}");
    }
    needs_nextest().map(|()| ExitCode::SUCCESS)
}

fn needs_nextest() -> Result<()> {
    if is_tool("nextest") {
        Ok(())
    } else {
        Err("there is no cargo-nextest: --install installs it".to_owned())
    }
}

impl Run {
    /// Runs everything, or what these arguments name.
    fn all(&self, args: &[String]) -> Result<Vec<Outcome>> {
        let words: Vec<_> = args.iter().map(String::as_str).collect();
        if let ["--test", name, rest @ ..] = &words[..]
            && let Some(shared) = Shared::named(name)
        {
            let rest = rest.strip_prefix(&["--"]).unwrap_or(rest);
            return Ok(vec![shared.run(self, &shared::build(shared)?, rest)?]);
        }
        if !words.is_empty() {
            return Ok(vec![nextest::run(self, "chosen", &words, None)?]);
        }
        let built = [Shared::Conformance, Shared::Sql].map(|one| Ok((one, shared::build(one)?)));
        let built = built.into_iter().collect::<Result<Vec<_>>>()?;
        let mut outcomes = if self.servers == Servers::Fetched {
            vec![Shared::Conformance.run(self, &built[0].1, &[ON_ALL_SERVERS])?]
        } else {
            self.side_by_side(&built)?
        };
        if self.servers != Servers::Usual {
            for release in self.servers.needed().filter(|release| release.version().is_ok()) {
                let program = match release.family() {
                    Family::Redis => "binary_id(lockwell-redis::redis)",
                    Family::ZooKeeper => "binary_id(lockwell-zk::zk)",
                    Family::Etcd => "binary_id(lockwell-etcd::etcd)",
                    _ => continue,
                };
                let args = ["--ignore-default-filter", "-E", program];
                outcomes.push(nextest::run(self, release.name(), &args, Some(release))?);
            }
        }
        Ok(outcomes)
    }

    /// The programs that share servers one after the other, and all other tests beside them.
    fn side_by_side(&self, built: &[(Shared, PathBuf)]) -> Result<Vec<Outcome>> {
        let all = self.servers == Servers::All;
        let threads: &[&str] = if all { &[ON_ALL_SERVERS] } else { &[] };
        let mut each = thread::scope(|scope| {
            let shared = scope.spawn(|| {
                let run = |(one, file): &(Shared, PathBuf)| {
                    let threads = if *one == Shared::Conformance { threads } else { &[] };
                    one.run(self, file, threads)
                };
                built.iter().map(run).collect::<Result<Vec<_>>>()
            });
            let documentation = scope.spawn(|| shared::documentation(self));
            // Nothing may run beside the tests of `faults`: they come when the other programs have ended.
            let others = if all {
                let others = "not (binary(conformance) | binary(sql) | package(faults))";
                nextest::run(self, "all", &["--ignore-default-filter", "-E", others], None)
            } else {
                nextest::run(self, "others", &["-E", "not package(faults)"], None)
            };
            let mut each = shared.join().map_err(|_| "a panic")??;
            each.push(documentation.join().map_err(|_| "a panic")??);
            each.push(others?);
            Ok::<_, String>(each)
        })?;
        each.push(nextest::run(self, "faults", &["-E", "package(faults)"], None)?);
        Ok(each)
    }

    /// What could not be run.
    fn remarks(&self) -> Vec<String> {
        let read = |file: &str| fs::read_to_string(self.folder.join(file)).unwrap_or_default();
        [missing::of_suite(&read("report.json")), remarks(&read("not-run"))].concat()
    }
}

/// Busy loops beside the tests: what is flaky shows when there is no processor to spare. They end when this is
/// dropped, or when this process ends in any way.
#[derive(Debug)]
struct Busy(Vec<Child>);

impl Busy {
    fn start(count: usize) -> Result<Self> {
        let mut busy = Self(Vec::new());
        for _ in 0..count {
            let mut child = Command::new("sh");
            child.args(["-c", &format!("while kill -0 {}; do :; done 2>/dev/null", std::process::id())]);
            busy.0.push(child.spawn().map_err(|error| format!("{}: {error}", line(&child)))?);
        }
        Ok(busy)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // One that has ended already cannot be killed, and is waited for all the same.
            if let Err(error) = child.kill().and_then(|()| child.wait().map(drop)) {
                eprintln!("xtask: busy loop {}: {error}", child.id());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use testbed::Release;

    use super::*;

    #[test]
    fn what_every_run_needs_is_fetched() {
        let needed = |servers: Servers| servers.needed().map(Release::name).collect::<Vec<_>>();
        assert_eq!(needed(Servers::Usual), ["mysql9"]);
        assert!(needed(Servers::All).contains(&"mariadb11"));
    }

    #[test]
    fn what_is_not_ours_is_handed_on() {
        #[derive(Debug, Parser)]
        struct Program {
            #[command(flatten)]
            options: Options,
        }
        let parsed = |line: &str| Program::try_parse_from(line.split(' ')).map(|program| program.options);
        let options = parsed("test --install --busy 4 --test conformance -- --busy redis::").unwrap();
        assert_eq!((options.busy, options.install), (4, true));
        assert_eq!(options.args.join(" "), "--test conformance -- --busy redis::");
        assert_eq!(parsed("test -p lockwell-core lease").unwrap().args.join(" "), "-p lockwell-core lease");
        assert!(parsed("test --busy x").is_err());
        assert!(parsed("test --deep --servers all").is_err());
    }

    #[test]
    fn busy_loops_end() {
        let busy = Busy::start(1).unwrap();
        let pid = busy.0[0].id().to_string();
        let runs = || Command::new("kill").args(["-0", &pid]).output().unwrap().status.success();
        assert!(runs());
        drop(busy);
        assert!(!runs());
    }
}
