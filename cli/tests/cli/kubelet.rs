//! The example for Kubernetes, and a process that plays kubelet and the controller of jobs: it starts pods, kills
//! them, backs off, and tries again.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use rustix::process::Signal;

use crate::documented::{file, shell, words};
use crate::support::{Running, Site, finish, is_alive, lockwell, pid_of, wait_until};

/// Kubernetes takes ten seconds, and twice as long each time.
const BACK_OFF: Duration = Duration::from_millis(50);

/// What the example says.
struct CronJob {
    command: Vec<String>,
    backoff_limit: usize,
    /// The statuses that end the job, and those that do not count.
    fails: Vec<i32>,
    ignored: Vec<i32>,
}

impl CronJob {
    fn read() -> Self {
        let text = file("examples/kubernetes/cronjob.yaml");
        let after = |what: &str| text.split_once(what).expect(what).1.trim_start();
        let words = after("command:\n").lines().map_while(|line| line.trim().strip_prefix("- "));
        let command = words.map(|word| word.trim_matches('"').to_owned()).collect();
        let limit = after("backoffLimit:").lines().next().unwrap().parse().unwrap();
        let statuses = |action: &str| {
            let rest = after(&format!("action: {action}"));
            let list = rest.split_once("values: [").unwrap().1.split_once(']').unwrap().0;
            list.split(", ").map(|status| status.parse().unwrap()).collect()
        };
        Self { command, backoff_limit: limit, fails: statuses("FailJob"), ignored: statuses("Ignore") }
    }

    /// One pod, with the folder of the test in the place of its volumes and its image.
    fn pod(&self, site: &Site, job: &str) -> Running {
        let place = |word: &String| {
            let own = site.path(word.rsplit('/').next().unwrap()).display().to_string();
            if word.starts_with('/') { own } else { word.replace("$(JOB)", job) }
        };
        let [program, words @ ..] = self.command.as_slice() else { panic!("no command") };
        assert_eq!(program, "lockwell");
        let words: Vec<_> = words.iter().map(place).collect();
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        Running::start(lockwell(&words).current_dir(site.path("")))
    }

    /// Runs pods until one succeeds, or the job has failed. `meet` does something to each. Whether it is
    /// complete, and how the pods ended.
    fn run(&self, site: &Site, job: &str, meet: impl Fn(usize, &Running)) -> (bool, Vec<i32>) {
        let (mut ends, mut failures) = (Vec::new(), 0);
        loop {
            let pod = self.pod(site, job);
            meet(ends.len(), &pod);
            let status = pod.finish().status;
            ends.push(status);
            failures += usize::from(status != 0 && !self.ignored.contains(&status));
            if status == 0 || self.fails.contains(&status) || failures > self.backoff_limit {
                return (status == 0, ends);
            }
            std::thread::sleep(BACK_OFF);
        }
    }
}

/// A folder with a report, which begins, waits while there is a file `hold`, and does this.
fn site(does: &str) -> Site {
    let site = Site::new();
    std::fs::write(site.path("url"), format!("{}?ttl=1s", site.url())).unwrap();
    let script = "#!/bin/sh\necho $$ >> begun\nwhile [ -e hold ]; do sleep 0.02; done\n";
    std::fs::write(site.path("nightly-report"), format!("{script}{does}\n")).unwrap();
    std::fs::set_permissions(site.path("nightly-report"), PermissionsExt::from_mode(0o755)).unwrap();
    site
}

const DONE: &str = "echo $LOCKWELL_ONCE $LOCKWELL_ATTEMPT >> done";

/// Ends the first pod while its report is under way.
fn end_first(site: &Site, signal: Signal) -> impl Fn(usize, &Running) {
    std::fs::write(site.path("begun"), "").unwrap();
    std::fs::write(site.path("hold"), "").unwrap();
    move |number, pod| {
        if number == 0 {
            let report = pid_of(site.wait_for_file("begun").parse().unwrap());
            pod.signal(signal);
            wait_until("the end of the report", || !is_alive(report));
            std::fs::remove_file(site.path("hold")).unwrap();
        }
    }
}

#[test]
fn a_job_is_done_once_although_its_first_pod_is_killed() {
    let (site, job) = (site(DONE), CronJob::read());
    // Out of memory or a node that dies, and an eviction.
    for (name, signal, status) in
        [("nightly-report-29341620", Signal::KILL, -1), ("nightly-report-29343060", Signal::TERM, 143)]
    {
        let (complete, ends) = job.run(&site, name, end_first(&site, signal));
        assert!(complete && ends == [status, 0], "{ends:?}");
        assert_eq!(site.read("done").lines().last(), Some(format!("{name} 2").as_str()));
        // A pod that is started once more, since nobody has seen the end of the last one, has nothing to do.
        assert_eq!(job.run(&site, name, |_, _| ()), (true, vec![0]));
    }
    assert_eq!(site.read("done").lines().count(), 2, "{}", site.read("done"));
    let jobs = site.finish(&["jobs", "nightly-report"]).out;
    let done = |line: &str| line.contains(": done, ") && line.ends_with(", 2 attempts");
    assert!(jobs.lines().count() == 2 && jobs.lines().all(done), "{jobs}");
}

#[test]
fn a_job_that_fails_is_tried_again_and_given_up() {
    let (site, job) = (site("exit 5"), CronJob::read());
    let run = || job.run(&site, "nightly-report-29341620", |_, _| ());
    for _ in 0..2 {
        assert_eq!(run(), (false, vec![5; 4]), "each pod, up to the backoffLimit");
    }
    assert_eq!(run(), (false, vec![5, 5, 78]), "--attempts 10, and no retry after that");
    assert_eq!(site.read("begun").lines().count(), 10);
    // Somebody has mended it, and says so.
    std::fs::write(site.path("nightly-report"), format!("#!/bin/sh\n{DONE}\n")).unwrap();
    let forgets = ["jobs", "--forget", "nightly-report-29341620", "nightly-report"];
    assert_eq!(site.finish(&forgets).status, 0);
    assert_eq!(run(), (true, vec![0]));
    assert_eq!(site.read("done"), "nightly-report-29341620 1");
}

/// A container of the Deployment of the example, and its probe.
struct Container {
    /// Its files, which are new for each container.
    site: Site,
    running: Running,
}

impl Container {
    fn start(url: &str, ttl: &str) -> Self {
        let site = Site::at(url);
        std::fs::write(site.path("url"), url).unwrap();
        // It takes its time to end when it is told to.
        let loops = "trap 'echo >> told' TERM; echo $$ > pid; while [ ! -e go ]; do sleep 0.02; done";
        std::fs::write(site.path("scheduler"), format!("#!/bin/sh\n{loops}\n")).unwrap();
        std::fs::set_permissions(site.path("scheduler"), PermissionsExt::from_mode(0o755)).unwrap();
        let command = words(&file("examples/kubernetes/leader.yaml")).replace(" 15s ", &format!(" {ttl} "));
        let running = Running::start(&mut shell(&site, &format!("exec {command}")));
        Self { site, running }
    }

    /// What kubelet finds.
    fn is_ready(&self) -> bool {
        let text = file("examples/kubernetes/leader.yaml");
        let (_, probe) = text.split_once("readinessProbe:").unwrap();
        finish(&mut shell(&self.site, &words(probe))).status == 0
    }
}

#[test]
fn the_leader_alone_is_ready() {
    let server = Site::new();
    let url = server.url();
    let first = Container::start(&url, "3s");
    let scheduler = pid_of(first.site.wait_for_file("pid").parse().unwrap());
    // Its lease lasts longer than the test.
    let second = Container::start(&url, "100s");
    wait_until("a candidate", || server.waiters("scheduler") == 1);
    assert!(first.is_ready() && !second.is_ready());

    // The leadership is lost, and the scheduler is being ended. The other one leads.
    assert_eq!(server.finish(&["release", "--force", "--yes", "scheduler"]).status, 0);
    wait_until("its term", || second.is_ready());
    first.site.wait_for_file("told");
    assert!(is_alive(scheduler) && !first.is_ready());
    std::fs::write(first.site.path("go"), "").unwrap();
    wait_until("a candidate", || server.waiters("scheduler") == 1);
    assert!(second.is_ready() && !first.is_ready(), "an old term");

    // It runs out of memory, and its lease is still there when a new container is.
    second.running.signal(Signal::KILL);
    assert_eq!(second.running.finish().status, -1);
    let third = Container::start(&url, "3s");
    wait_until("two candidates", || server.waiters("scheduler") == 2);
    assert!(!third.is_ready() && !first.is_ready());

    // One of them leads then, the first one for the second time.
    std::fs::remove_file(first.site.path("go")).unwrap();
    assert_eq!(server.finish(&["release", "--force", "--yes", "scheduler"]).status, 0);
    wait_until("a term", || first.is_ready() || third.is_ready());
    assert_ne!(first.is_ready(), third.is_ready());
}
