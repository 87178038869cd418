//! The committed runs.

use std::fs;
use std::path::Path;

use faults::{Results, Verdict};

use crate::error::{Error, Result};
use crate::record::file::Input;
use crate::record::{Measurement, Report};
use crate::view::distinct;
use crate::view::trust::doubt;

/// The case in which a holder is killed.
const KILLED: &str = "the holder is killed";

/// The most bytes of all committed runs together.
const MOST_BYTES: u64 = 1_000_000;

/// The most parties that the documentation quotes. A full run has more of them, which share the two cores of
/// the machine, and the other runs do not.
const MOST_PARTIES: [(&str, usize); 3] = [("independent", 64), ("handoff", 4), ("crowd", 500)];

/// Runs and pages that are of several commits. Each leaves this list when its runs are made anew, and none comes to
/// it.
pub(super) const MIXED: [&str; 4] = ["disk", "README.md", "docs/guarantees.md", "docs/measured.md"];

/// One run, in one or several result files with other backends each.
pub(super) struct Run {
    name: String,
    pub(super) reports: Vec<Report>,
}

/// All files of a folder.
#[derive(Default)]
pub(super) struct Evidence {
    /// By their delay, then by their name.
    pub(super) runs: Vec<Run>,
    pub(super) faults: Vec<(String, Results)>,
}

impl Evidence {
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let mut paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
        paths.sort();
        let size: u64 = paths.iter().map(|path| Ok(path.metadata()?.len())).sum::<Result<u64>>()?;
        if size > MOST_BYTES {
            return Err(Error::failed(format!("the runs have {size} bytes; {MOST_BYTES} are allowed")));
        }
        let mut all = Self::default();
        for path in &paths {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let name = name.split('.').next().unwrap_or_default();
            let added = match Input::read(path)? {
                Input::Run(report) => all.add(name, *report),
                Input::Faults(results) => all.add_faults(name, results),
            };
            added.map_err(|reason| Error::failed(format!("{}: {reason}", path.display())))?;
        }
        for run in &all.runs {
            check_commits(&run.name, &run.commits()).map_err(Error::failed)?;
        }
        all.runs.sort_by_key(|run| (run.delay_us(), run.name.clone()));
        Ok(all)
    }

    fn add(&mut self, name: &str, report: Report) -> Result<(), String> {
        fit(name, &report)?;
        let Some(run) = self.runs.iter_mut().find(|run| run.name == name) else {
            self.runs.push(Run { name: name.to_owned(), reports: vec![report] });
            return Ok(());
        };
        let setting = crate::view::Setting::of;
        if setting(&run.reports[0]) != setting(&report) {
            return Err("this part was measured on another machine, or under other conditions".to_owned());
        }
        if report.backends.iter().any(|backend| run.backends().contains(&&*backend.name)) {
            return Err("two parts of the run have the same backend".to_owned());
        }
        run.reports.push(report);
        let commits = run.commits();
        if commits.len() > 1 { check_commits(name, &commits) } else { Ok(()) }
    }

    /// Only runs of commits are taken, and files in which each run could be made.
    fn add_faults(&mut self, name: &str, results: Results) -> Result<(), String> {
        for outcome in &results.outcomes {
            let of = format!("{} on {}, seed {}", outcome.scenario, outcome.backend, outcome.seed);
            if matches!(outcome.verdict, Verdict::NotRun { .. }) {
                return Err(format!("{of}: it could not be run"));
            }
            if outcome.made.commit.as_ref().is_none_or(|commit| commit.ends_with('+')) {
                return Err(format!("{of}: this is not a run of a commit"));
            }
        }
        match self.faults.iter_mut().find(|(known, _)| known == name) {
            Some((_, before)) => before.outcomes.extend(results.outcomes),
            None => self.faults.push((name.to_owned(), results)),
        }
        Ok(())
    }

    /// The commits of what fills a block. Without a name of its own it is filled from several runs.
    pub(super) fn commits(&self, what: &str) -> Vec<String> {
        let is_it = |name: &str| match what.split_once(' ') {
            Some(("delays", _)) => name.starts_with("delay-"),
            Some((_, run)) => run == name,
            None => super::summary::RUNS.contains(&name),
        };
        let all = self.all_commits().into_iter();
        distinct(all.filter(|(name, _)| is_it(name)).map(|(_, commit)| commit))
    }

    /// Each run with each of its commits, in short.
    pub(super) fn all_commits(&self) -> Vec<(String, String)> {
        let runs = self
            .runs
            .iter()
            .flat_map(|run| run.commits().into_iter().map(|commit| (run.name.clone(), commit)));
        let faults = self.faults.iter().flat_map(|(name, results)| {
            let commits = results.outcomes.iter().map(|outcome| commit(outcome.made.commit.as_deref()));
            commits.map(|commit| (name.clone(), commit))
        });
        distinct(runs.chain(faults))
    }

    /// The run of this name.
    pub(super) fn named(&self, name: &str) -> Result<&Run> {
        let run = self.runs.iter().find(|run| run.name == name);
        run.ok_or_else(|| Error::failed(format!("there is no run {name:?}")))
    }
}

/// What a run or a page of this name shows is of one commit, or of several if it is known for that.
pub(super) fn check_commits(name: &str, commits: &[String]) -> Result<(), String> {
    match (commits.len(), MIXED.contains(&name)) {
        (2.., false) => Err(format!("{name} is of several commits: {}", commits.join(", "))),
        (1, true) => Err(format!("{name} is of one commit now: take it off the list MIXED")),
        _ => Ok(()),
    }
}

/// As many digits of a commit as are shown.
pub(super) fn commit(commit: Option<&str>) -> String {
    commit.map_or("?", |it| it.get(..10).unwrap_or(it)).to_owned()
}

/// What is shown to others was measured to the end, by a release build of a commit, and is what its name
/// says.
fn fit(name: &str, report: &Report) -> Result<(), String> {
    let (conditions, build) = (&report.conditions, &report.build);
    if let Some(doubt) = doubt(report) {
        Err(doubt)
    } else if !report.finished || !report.failures.is_empty() {
        Err("this run is not complete, or cases of it have failed".to_owned())
    } else if build.profile != "release" || build.git_commit.is_none() || build.git_dirty != Some(false) {
        Err("this run is not of a release build, or of a checkout with changes".to_owned())
    } else if name.starts_with("delay") != (conditions.delay_us != 0)
        || (name == "tmpfs") != (conditions.storage == "tmpfs" && conditions.delay_us == 0)
    {
        Err("this run was not measured under the conditions that its name says".to_owned())
    } else {
        Ok(())
    }
}

impl Run {
    /// How much later data arrives, each way.
    pub(super) fn delay_us(&self) -> u64 {
        self.reports[0].conditions.delay_us
    }

    /// In short.
    pub(super) fn commits(&self) -> Vec<String> {
        distinct(self.reports.iter().map(|report| commit(report.build.git_commit.as_deref())))
    }

    pub(super) fn backends(&self) -> Vec<&str> {
        self.reports.iter().flat_map(|report| &report.backends).map(|backend| &*backend.name).collect()
    }

    /// Results of a workload that are quoted: those of our lock without options, and not with more parties
    /// than elsewhere.
    pub(super) fn results(&self, workload: &str) -> impl Iterator<Item = &Measurement> {
        let most = MOST_PARTIES.iter().find(|(name, _)| *name == workload).map_or(usize::MAX, |it| it.1);
        let all = self.reports.iter().flat_map(|report| &report.results);
        all.filter(move |it| it.workload == workload && it.option.is_none() && it.parties <= most)
    }

    /// Our lock with this option, with so many parties.
    pub(super) fn with_option(&self, like: &Measurement, option: &str) -> Option<&Measurement> {
        let mut all = self.reports.iter().flat_map(|report| &report.results);
        all.find(|it| {
            (&it.backend, &it.workload, it.parties) == (&like.backend, &like.workload, like.parties)
                && it.option.as_deref() == Some(option)
        })
    }

    /// How long it took after the holder was killed until the lock was free again.
    pub(super) fn killed(&self, backend: &str) -> Option<&Measurement> {
        self.results("recovery").find(|it| it.backend == backend && it.case == KILLED)
    }

    /// How long a sync of its disk took.
    pub(super) fn sync_us(&self) -> Option<f64> {
        self.reports[0].sync_us()
    }

    /// The most parties that are quoted of a workload.
    pub(super) fn parties(&self, workload: &str) -> usize {
        self.results(workload).map(|result| result.parties).max().unwrap_or_default()
    }

    /// The one with the most parties of those without a hold.
    pub(super) fn last(&self, backend: &str, workload: &str) -> Option<&Measurement> {
        let of_backend = self.results(workload).filter(|it| it.backend == backend && it.hold_us == 0);
        of_backend.max_by_key(|result| result.parties)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Failure;
    use crate::record::tests::report;

    fn run() -> Report {
        let mut run = report();
        (run.mode, run.finished, run.load_before) = ("usual".to_owned(), true, 0.0);
        run.build.profile = "release".to_owned();
        (run.build.git_commit, run.build.git_dirty) = (Some("0123456789".to_owned()), Some(false));
        run
    }

    #[test]
    fn only_whole_runs_of_a_commit_that_are_what_their_name_says_are_taken() {
        assert_eq!(fit("disk", &run()), Ok(()));
        let changes: [fn(&mut Report); 6] = [
            |run| run.finished = false,
            |run| run.mode = "smoke".to_owned(),
            |run| run.build.git_dirty = Some(true),
            |run| run.build.profile = "quick".to_owned(),
            |run| run.conditions.delay_us = 5000,
            |run| run.conditions.storage = "tmpfs".to_owned(),
        ];
        for (number, change) in changes.iter().enumerate() {
            let mut run = run();
            change(&mut run);
            assert!(fit("disk", &run).is_err(), "{number}");
        }
        let failed = Failure {
            backend: String::new(),
            workload: String::new(),
            case: String::new(),
            reason: String::new(),
        };
        assert!(fit("disk", &Report { failures: vec![failed], ..run() }).is_err());
        assert!(fit("tmpfs", &run()).is_err() && fit("delay-5ms", &run()).is_err());
    }

    #[test]
    fn what_is_of_several_commits_is_known_for_that() {
        let of = |commits: &[&str]| commits.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        assert!(check_commits("docs/sql.md", &of(&["a"])).is_ok() && check_commits("tmpfs", &[]).is_ok());
        assert!(
            check_commits("docs/sql.md", &of(&["a", "b"])).unwrap_err().contains("several commits: a, b")
        );
        for name in MIXED {
            assert!(check_commits(name, &of(&["a", "b"])).is_ok() && check_commits(name, &[]).is_ok());
            assert!(check_commits(name, &of(&["a"])).unwrap_err().contains("off the list"));
        }
    }

    #[test]
    fn the_files_of_a_run_are_of_one_commit() {
        let (mut all, mut one) = (Evidence::default(), run());
        one.backends = vec![crate::view::family::tests::backend("redis", &[])];
        all.add("slow-disk", one.clone()).unwrap();
        (one.backends[0].name, one.build.git_commit) = ("etcd".to_owned(), Some("another".to_owned()));
        let refused = all.add("slow-disk", one).unwrap_err();
        assert!(refused.contains("slow-disk is of several commits: 0123456789, another"), "{refused}");
    }

    #[test]
    fn the_runs_stay_small() {
        let folder = tempfile::tempdir().unwrap();
        let file = fs::File::create(folder.path().join("disk.json.gz")).unwrap();
        let reason = |bytes| {
            file.set_len(bytes).unwrap();
            Evidence::read(folder.path()).err().unwrap().to_string()
        };
        assert!(!reason(MOST_BYTES).contains("allowed"), "it is no run, but small enough");
        assert!(reason(MOST_BYTES + 1).contains("1000001 bytes; 1000000 are allowed"));
    }

    #[test]
    fn a_run_may_have_several_files_of_one_machine() {
        let (mut all, mut one) = (Evidence::default(), run());
        one.backends = vec![crate::view::family::tests::backend("redis", &[])];
        all.add("disk", one.clone()).unwrap();
        assert!(all.add("disk", one.clone()).unwrap_err().contains("same backend"));
        one.backends[0].name = "etcd".to_owned();
        all.add("disk", one.clone()).unwrap();
        assert_eq!(all.named("disk").unwrap().backends(), ["redis", "etcd"]);
        one.machine.cores += 1;
        assert!(all.add("disk", one).unwrap_err().contains("another machine"));
    }
}
