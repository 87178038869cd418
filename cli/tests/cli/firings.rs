//! The examples for cron and systemd on several hosts, which are killed in the middle, and processes that play
//! cron and systemd.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt as _;

use rustix::process::{Pid, Signal, kill_process_group};

use crate::documented::{file, filled_in, shell};
use crate::support::{Finished, Running, Site, is_alive, pid_of, stat, wait_until};

/// What all hosts have: the address of the lock server, the day, and a report that waits while there is a file
/// `hold`.
fn site(url: Option<&str>) -> Site {
    let site = url.map_or_else(Site::new, Site::at);
    let separator = if site.url().contains('?') { '&' } else { '?' };
    std::fs::write(site.path("url"), format!("{}{separator}ttl=3s", site.url())).unwrap();
    // What the date is does not depend on when the test runs.
    program(&site, "date", "[ \"$1\" = +%F ] && cat day");
    program(&site, "nightly-report", "echo $$ >> begun; while [ -e hold ]; do sleep 0.02; done; . ./end");
    std::fs::write(site.path("end"), "echo $LOCKWELL_ONCE $LOCKWELL_ATTEMPT >> done").unwrap();
    site
}

fn program(site: &Site, name: &str, text: &str) {
    std::fs::write(site.path(name), format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(site.path(name), PermissionsExt::from_mode(0o755)).unwrap();
}

fn begin_day(site: &Site, day: &str) {
    std::fs::write(site.path("day"), format!("{day}\n")).unwrap();
    std::fs::write(site.path("begun"), "").unwrap();
    std::fs::write(site.path("hold"), "").unwrap();
}

/// How often the report has begun on this day.
fn begun(site: &Site) -> usize {
    site.read("begun").lines().count()
}

/// One host on which the command of an example runs, in a process group of its own.
fn host(site: &Site, command: &str) -> Running {
    Running::start(shell(site, &format!("exec {}", filled_in(command))).process_group(0))
}

fn hosts(site: &Site, command: &str, count: usize) -> Vec<Running> {
    let hosts = (0..count).map(|_| host(site, command)).collect();
    wait_until("a report, and those that wait", || {
        begun(site) == 1 && site.waiters("nightly-report") + 1 == count as u64
    });
    hosts
}

/// The report that has begun last.
fn report(site: &Site) -> Pid {
    pid_of(site.read("begun").lines().last().unwrap().parse().unwrap())
}

/// Takes the host out of these whose report runs.
fn busy(site: &Site, hosts: &mut Vec<Running>) -> Running {
    let lockwell = pid_of(stat(report(site))[1].parse().unwrap());
    hosts.remove(hosts.iter().position(|host| host.pid() == lockwell).expect("the host of the report"))
}

/// The host loses its power.
fn crash(site: &Site, host: Running) {
    let report = report(site);
    kill_process_group(host.pid(), Signal::KILL).unwrap();
    // It may have ended with lockwell.
    kill_process_group(report, Signal::KILL).unwrap_or_default();
    assert_eq!(host.finish().status, -1);
    wait_until("the end of the report", || !is_alive(report));
}

fn let_go(site: &Site) {
    std::fs::remove_file(site.path("hold")).unwrap();
}

/// What the operator sees of each key, the newest first.
fn jobs(site: &Site) -> Vec<String> {
    let jobs = site.finish(&["jobs", "nightly-report"]);
    assert_eq!(jobs.status, 0, "{jobs:?}");
    jobs.out.lines().map(str::to_owned).collect()
}

/// Every host but one that is killed does this.
fn all_end(hosts: Vec<Running>) {
    for host in hosts {
        let end = host.finish();
        assert_eq!(end.status, 0, "{end:?}");
    }
}

/// A night of three hosts, one of which dies, and nights in which the next firing comes after that.
fn nights(site: &Site, command: &str) {
    begin_day(site, "2026-11-29");
    let mut three = hosts(site, command, 3);
    let dies = busy(site, &mut three);
    crash(site, dies);
    let_go(site);
    all_end(three);
    assert_eq!(begun(site), 2);
    assert_eq!(site.read("done"), "2026-11-29 2");

    begin_day(site, "2026-11-30");
    crash(site, hosts(site, command, 1).remove(0));
    let_go(site);
    for _ in 0..2 {
        all_end(vec![host(site, command)]);
    }
    assert_eq!(begun(site), 2, "the next firing, and none after that");
    assert_eq!(site.read("done"), "2026-11-29 2\n2026-11-30 2");

    begin_day(site, "2026-12-01");
    for attempt in 1..=3 {
        let host = host(site, command);
        wait_until("an attempt", || begun(site) == attempt);
        crash(site, host);
    }
    let_go(site);
    host(site, command).finish().complains(78, "given up after 3 attempts");
    assert_eq!(begun(site), 3);
    let jobs = jobs(site);
    let [last, second, first] = &jobs[..] else { panic!("{jobs:?}") };
    assert!(last.contains("2026-12-01") && last.contains(": died, "), "{last}");
    for (line, day) in [(second, "2026-11-30"), (first, "2026-11-29")] {
        assert!(line.contains(day) && line.contains(": done, ") && line.ends_with(", 2 attempts"), "{line}");
    }
}

/// The command of the example for cron.
fn crontab() -> String {
    let text = file("examples/cron/nightly-report");
    let line = text.lines().find(|line| line.starts_with("0 3")).unwrap();
    line.splitn(7, ' ').last().unwrap().to_owned()
}

/// What a unit says.
struct Unit {
    command: String,
    restart: Restart,
    /// The statuses after which it is not started again.
    prevented: Vec<i32>,
}

#[derive(Debug, PartialEq)]
enum Restart {
    No,
    Always,
}

impl Unit {
    fn read(name: &str) -> Self {
        let text = file(&format!("examples/systemd/{name}"));
        let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(&format!("{key}=")));
        assert_eq!(value("KillMode"), Some("mixed"), "the player knows no other");
        let restart = match value("Restart") {
            None => Restart::No,
            Some("always") => Restart::Always,
            other => panic!("the player does not know {other:?}"),
        };
        let prevented = value("RestartPreventExitStatus").unwrap_or_default().split_whitespace();
        let prevented = prevented.map(|status| status.parse().unwrap()).collect();
        Self { command: value("ExecStart").unwrap().to_owned(), restart, prevented }
    }

    /// Whether systemd starts it again by itself after this end, which nobody has asked for.
    fn is_restarted(&self, end: &Finished) -> bool {
        self.restart == Restart::Always && !self.prevented.contains(&end.status)
    }
}

#[test]
#[cfg(feature = "postgres")]
fn hosts_with_cron_are_killed() {
    crate::support::block_on(async {
        let Some(server) = crate::servers::postgres().await else { return };
        nights(&site(Some(&server.url())), &crontab());
    });
}

#[test]
#[cfg(feature = "redis")]
fn hosts_with_systemd_are_killed() {
    use testbed::{Durability, Redis, if_installed};
    let unit = Unit::read("nightly-report.service");
    crate::support::block_on(async {
        let options = crate::everyday::options().durability(Durability::Disk);
        let Some(server) = if_installed(Redis::start_with(&options).await) else { return };
        nights(&site(Some(&server.url())), &unit.command);
    });
}

/// What the unit makes of the other ends of a report.
#[test]
fn hosts_with_systemd_are_shut_down_and_fail() {
    let (site, unit) = (site(None), Unit::read("nightly-report.service"));
    // A host is shut down: with KillMode=mixed lockwell gets TERM, and another host takes over at once.
    begin_day(&site, "2026-11-29");
    let mut two = hosts(&site, &unit.command, 2);
    let stops = busy(&site, &mut two);
    stops.signal(Signal::TERM);
    assert_eq!(stops.finish().status, 143);
    let_go(&site);
    all_end(two);
    assert_eq!((begun(&site), site.read("done").as_str()), (2, "2026-11-29 2"));

    // The report fails by itself: systemd does not try again in this night, nor does the host that waits.
    begin_day(&site, "2026-11-30");
    let both = hosts(&site, &unit.command, 2);
    std::fs::write(site.path("end"), "exit 5").unwrap();
    let_go(&site);
    let ends: Vec<_> = both.into_iter().map(Running::finish).collect();
    assert!(!ends.iter().any(|end| unit.is_restarted(end)), "{ends:?}");
    let mut statuses: Vec<_> = ends.iter().map(|end| end.status).collect();
    statuses.sort_unstable();
    assert_eq!((begun(&site), statuses), (1, vec![5, 75]));
    // Somebody starts it again, until it is given up.
    for status in [5, 5, 78] {
        assert_eq!(host(&site, &unit.command).finish().status, status);
    }
    assert_eq!(begun(&site), 3);
    assert!(jobs(&site)[0].contains(": failed, "), "{:?}", jobs(&site));
}

/// The unit of the leader is started again whatever happens to it, unless that is in vain.
#[test]
#[cfg(feature = "redis")]
fn a_leader_with_systemd_campaigns_again() {
    let (site, unit) = (site(None), Unit::read("scheduler.service"));
    program(&site, "scheduler", "echo $$ >> terms; exec sleep 60");
    let terms = || site.read("terms").lines().count();
    let url = std::fs::read_to_string(site.path("url")).unwrap();
    std::fs::write(site.path("url"), "redis://127.0.0.1:1").unwrap();
    let away = host(&site, &unit.command).finish();
    assert!(unit.is_restarted(&away) && away.status == 69, "{away:?}");
    std::fs::write(site.path("url"), url).unwrap();
    for term in 1..=2 {
        let leader = host(&site, &unit.command);
        wait_until("a term", || terms() == term);
        let scheduler = pid_of(site.read("terms").lines().last().unwrap().parse().unwrap());
        leader.signal(Signal::KILL);
        let end = leader.finish();
        wait_until("the end of the scheduler", || !is_alive(scheduler));
        assert!(unit.is_restarted(&end), "{end:?}");
        assert_eq!(site.finish(&["release", "--force", "--yes", "scheduler"]).status, 0);
    }
    std::fs::write(site.path("url"), "sqlit://x").unwrap();
    let wrong = host(&site, &unit.command).finish();
    assert!(!unit.is_restarted(&wrong) && wrong.status == 64, "{wrong:?}");
}
