//! Jobs of a shell on a terminal.

use std::time::{Duration, Instant};

use rustix::process::Pid;

use crate::loss::take_away;
use crate::support::{Site, is_alive, is_stopped, pid_of, stat, wait_until};
use crate::terminal::OnTerminal;

/// The shell's prompt is back: it reads from the terminal.
fn wait_for_prompt(shell: &OnTerminal) {
    wait_until("the prompt", || shell.foreground() == shell.pid());
}

/// Starts lockwell with this script as its command, in the file `job`, as a job. Answers the command and
/// lockwell.
fn start(site: &Site, shell: &OnTerminal, options: &str, script: &str) -> (Pid, Pid) {
    std::fs::write(site.path("job"), format!("{script}\n")).unwrap();
    shell.types(&format!("\"$LOCKWELL\" run {options} a -- sh job\n"));
    let command = pid_of(site.wait_for_file("pid").parse().unwrap());
    let parent = stat(command)[1].parse().unwrap();
    (command, pid_of(parent))
}

/// When the lease of `a` ends: between these times.
fn end_of_lease(site: &Site) -> [Instant; 2] {
    let asked = Instant::now();
    let status = site.finish(&["status", "--json", "a"]);
    let answered = Instant::now();
    let status: serde_json::Value = serde_json::from_str(&status.out).expect(&status.err);
    let left = Duration::from_millis(status["holders"][0]["ttl_ms"].as_u64().expect("it is held"));
    [asked + left, answered + left]
}

/// Ctrl-Z stops lockwell and its command together, with the lock, and `fg` lets both go on.
#[test]
fn a_job_that_was_stopped_goes_on_under_its_lock() {
    let site = Site::new();
    let shell = OnTerminal::shell(&site);
    let before = shell.settings();
    let script = "echo $$ > pid; read word; echo \"got $word\"; exit 3";
    let (command, lockwell) = start(&site, &shell, "--ttl 12s", script);
    let job = shell.foreground();
    assert!(job != shell.pid() && job == pid_of(stat(command)[2].parse().unwrap()));

    shell.types("\u{1a}");
    wait_until("both stopped", || is_stopped(command) && is_stopped(lockwell));
    wait_for_prompt(&shell);
    let [_, end] = end_of_lease(&site);
    site.finish(&["run", "--no-wait", "a", "--", "true"]).complains(75, "is held by");

    shell.types("fg\n");
    wait_until("both go on", || !is_stopped(command) && !is_stopped(lockwell));
    wait_until("the foreground", || shell.foreground() == job);
    wait_until("a renewal", || end_of_lease(&site)[0] > end + Duration::from_secs(1));
    shell.types("ann\n");
    shell.shows("got ann");
    wait_for_prompt(&shell);
    shell.types("echo \"status $?\"\n");
    shell.shows("status 3");
    assert_eq!(shell.settings(), before);
    assert_eq!(site.finish(&["run", "--no-wait", "a", "--", "true"]).status, 0);
}

/// Ctrl-Z for longer than the lease.
#[test]
fn a_job_that_was_stopped_for_too_long_is_ended() {
    let site = Site::new();
    let shell = OnTerminal::shell(&site);
    let (command, lockwell) = start(&site, &shell, "--ttl 1500ms", "echo $$ > pid; exec sleep 60");
    shell.types("\u{1a}");
    wait_until("both stopped", || is_stopped(command) && is_stopped(lockwell));
    wait_for_prompt(&shell);
    assert_eq!(site.finish(&["run", "--wait", "10s", "a", "--", "true"]).status, 0);
    shell.types("fg\n");
    shell.shows("lost the lock \"a\": its lease ran out");
    wait_until("the end of the command", || !is_alive(command));
    wait_until("the end of lockwell", || !is_alive(lockwell));
    wait_for_prompt(&shell);
    shell.types("echo \"status $?\"\n");
    shell.shows("status 76");
}

/// The command has no time to undo what it has set.
#[test]
fn a_lost_lock_leaves_the_terminal_as_it_was() {
    let site = Site::new();
    let shell = OnTerminal::shell(&site);
    let before = shell.settings();
    let script = "stty -echo -icanon; trap '' TERM; echo $$ > pid; while :; do sleep 0.02; done";
    let (command, lockwell) = start(&site, &shell, "--ttl 3s --grace 300ms", script);
    assert_ne!(shell.settings(), before);
    take_away(&site);
    shell.shows("lost the lock \"a\": the lock server says that another has it");
    wait_until("the end of the command", || !is_alive(command));
    wait_until("the end of lockwell", || !is_alive(lockwell));
    wait_for_prompt(&shell);
    assert_eq!(shell.settings(), before);
    shell.types("echo \"status $?\"\n");
    shell.shows("status 76");
}

/// A shell knows that only of programs that it has started itself.
#[test]
fn a_command_that_a_signal_ends_leaves_the_terminal_as_it_was() {
    let site = Site::new();
    let shell = OnTerminal::shell(&site);
    let before = shell.settings();
    let script = "stty -echo -icanon; echo $$ > pid; while [ ! -e go ]; do sleep 0.02; done; kill -KILL $$";
    let (_, lockwell) = start(&site, &shell, "", script);
    assert_ne!(shell.settings(), before);
    std::fs::write(site.path("go"), "").unwrap();
    wait_until("the end of lockwell", || !is_alive(lockwell));
    wait_for_prompt(&shell);
    assert_eq!(shell.settings(), before);
    shell.types("echo \"status $?\"\n");
    shell.shows("status 137");
}
