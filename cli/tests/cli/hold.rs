//! `lockwell hold`: the protocol of docs/hold.md.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Finished, Running, Site, block_on, finish, wait_until};

/// How long a line may take on a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A `lockwell hold`, as its parent sees it.
pub(crate) struct Held {
    run: Running,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Held {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut run = Running::start(command.stdin(Stdio::piped()));
        let (input, output) = (run.input(), run.output());
        let (line, lines) = channel();
        std::thread::spawn(move || {
            let mut read = BufReader::new(output).lines().map_while(Result::ok);
            read.all(|text| line.send(text).is_ok());
        });
        Self { run, input: Some(input), lines }
    }

    /// With the lock `a`, granted.
    fn granted(site: &Site, options: &[&str]) -> Self {
        let held = Self::start(&mut site.lockwell(&[&["hold", "--json", "a"], options].concat()));
        held.is_told("granted");
        held
    }

    pub(crate) fn says(&mut self, line: &str) {
        self.input.as_mut().unwrap().write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// The next event, which is this one, with the fields that the guide lists.
    #[track_caller]
    pub(crate) fn is_told(&self, event: &str) -> Value {
        let line = self.lines.recv_timeout(TIMEOUT).unwrap_or_else(|error| panic!("{event}: {error}"));
        let told: Value = serde_json::from_str(&line).expect(&line);
        assert_eq!((&told["event"], &told["schema_version"]), (&event.into(), &1.into()), "{line}");
        is_as_the_guide_says(&told);
        told
    }

    /// Its end, with no line more.
    #[track_caller]
    pub(crate) fn ends(self) -> Finished {
        drop(self.input);
        let run = self.run.finish();
        let more: Vec<_> = self.lines.iter().collect();
        assert!(more.is_empty(), "{more:?}");
        run
    }
}

#[track_caller]
fn is_as_the_guide_says(told: &Value) {
    let guide = include_str!("../../../docs/hold.md");
    let line = format!("| `{}` | ", told["event"].as_str().unwrap());
    let told_of = guide.lines().find_map(|text| text.strip_prefix(&line)).expect(&line);
    let cells: Vec<_> = told_of.trim_end_matches(" |").split(" | ").collect();
    let words = |text: &str| text.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    let (always, sometimes) = (words(cells.get(1).unwrap_or(&"")), words(cells.get(2).unwrap_or(&"")));
    let keys: Vec<_> = told.as_object().unwrap().keys().cloned().collect();
    for field in &always {
        assert!(keys.contains(field), "no {field}: {told}");
    }
    for key in keys.iter().filter(|key| !["schema_version", "event"].contains(&key.as_str())) {
        assert!(always.contains(key) || sometimes.contains(key), "{key} is not in the guide: {told}");
    }
}

fn is_free(site: &Site, name: &str) {
    let run = site.finish(&["run", "--no-wait", name, "--", "true"]);
    assert_eq!(run.status, 0, "{run:?}");
}

#[test]
fn a_lock_is_held_until_the_parent_releases_it() {
    let site = Site::new();
    let mut held = Held::start(&mut site.lockwell(&["hold", "--json", "--ttl", "1s", "orders/\"42\" ü"]));
    let granted = held.is_told("granted");
    assert_eq!(granted["name"], "orders/\"42\" ü");
    assert_eq!(granted["locks"].as_array().unwrap().len(), 1);
    for field in ["name", "token", "hold_id"] {
        assert_eq!(granted["locks"][0][field], granted[field], "{granted}");
    }
    let valid = granted["valid_ms"].as_u64().unwrap();
    assert!((1..1000).contains(&valid), "{granted}");
    site.finish(&["run", "--no-wait", "orders/\"42\" ü", "--", "true"]).complains(75, "is held by");
    // Longer than the ttl: it is renewed although the parent does nothing.
    std::thread::sleep(Duration::from_millis(2500));
    held.says("check");
    let valid = held.is_told("held")["valid_ms"].as_u64().unwrap();
    assert!((1..1000).contains(&valid), "{valid}");
    held.says("what");
    held.says("release");
    assert_eq!(held.is_told("released")["cause"], "asked");
    is_free(&site, "orders/\"42\" ü");
    let run = held.ends();
    assert_eq!(run.status, 0, "{run:?}");
    assert!(run.err.contains("a line on standard input is none of"), "{run:?}");
}

#[test]
fn the_end_of_the_input_releases_it() {
    let site = Site::new();
    let mut held = Held::granted(&site, &[]);
    // What comes before the end is heard.
    held.says("check");
    held.input = None;
    held.is_told("held");
    assert_eq!(held.is_told("released")["cause"], "input_ended");
    is_free(&site, "a");
    assert_eq!(held.ends().status, 0);
}

#[test]
fn the_death_of_the_parent_releases_it() {
    let site = Site::new();
    // The shell becomes `sleep`, which keeps the other end of the pipe.
    let script = "mkfifo in; \"$0\" hold --json a < in > told & exec 3> in; exec sleep 60";
    let mut parent = Command::new("sh");
    parent.args(["-c", script, env!("CARGO_BIN_EXE_lockwell")]).current_dir(site.path(""));
    parent.env("LOCKWELL_URL", site.url()).env_remove("LOCKWELL_HELD").env_remove("RUST_LOG");
    let parent = Running::start(parent.stdin(Stdio::null()).stderr(Stdio::null()));
    site.wait_for_file("told");
    site.finish(&["run", "--no-wait", "a", "--", "true"]).complains(75, "is held by");
    parent.signal(Signal::KILL);
    let killed = Instant::now();
    wait_until("the release", || site.read("told").contains("input_ended"));
    is_free(&site, "a");
    assert!(killed.elapsed() < Duration::from_secs(8), "not by the end of the lease: {:?}", killed.elapsed());
}

#[test]
fn an_input_that_ends_at_once_is_refused() {
    let site = Site::new();
    std::fs::write(site.path("file"), "").unwrap();
    for input in [Stdio::null(), File::open(site.path("file")).unwrap().into()] {
        let run = finish(site.lockwell(&["hold", "--json", "a"]).stdin(input));
        assert_eq!(run.status, 64, "{run:?}");
        let told: Value = serde_json::from_str(&run.out).unwrap();
        assert_eq!((&told["event"], &told["exit_status"]), (&"refused".into(), &64.into()));
        assert!(run.err.contains("standard input must be a pipe"), "{run:?}");
    }
    assert!(!site.path("locks.db").exists(), "nothing was tried");
}

#[test]
fn an_output_that_nobody_can_read_releases_it() {
    let site = Site::new();
    let mut command = site.lockwell(&["hold", "--json", "a"]);
    let mut run = Running::start(command.stdin(Stdio::piped()));
    let (mut input, output) = (run.input(), run.output());
    let mut output = BufReader::new(output);
    output.read_line(&mut String::new()).unwrap();
    drop(output);
    input.write_all(b"check\n").unwrap();
    let run = run.finish();
    assert!(run.status == 70 && run.err.contains("nobody can read standard output"), "{run:?}");
    is_free(&site, "a");
    drop(input);
}

#[test]
fn a_signal_releases_it_and_says_so() {
    for (signal, status) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let site = Site::new();
        let held = Held::granted(&site, &[]);
        held.run.signal(signal);
        assert_eq!(held.is_told("released")["cause"], "signal");
        is_free(&site, "a");
        assert_eq!(held.ends().status, status);
    }
}

#[test]
fn a_loss_is_told_with_its_cause() {
    let site = Site::new();
    let held = Held::granted(&site, &["--ttl", "2s"]);
    block_on(async { site.locks().await.force_release("a").await.unwrap() });
    let lost = held.is_told("lost");
    assert_eq!((&lost["name"], &lost["cause"]), (&"a".into(), &"taken".into()));
    let run = held.ends();
    assert_eq!(run.status, 76, "{run:?}");
    assert!(run.err.contains("\"exit_status\":76"), "{run:?}");

    let held = Held::granted(&site, &["--max-hold", "300ms"]);
    assert_eq!(held.is_told("lost")["cause"], "held_too_long");
    assert_eq!(held.ends().status, 76);
    is_free(&site, "a");
}

/// The server said so in its answer to the release.
#[test]
fn a_loss_that_the_release_notices_is_told() {
    let site = Site::new();
    let mut held = Held::granted(&site, &["--ttl", "60s"]);
    block_on(async { site.locks().await.force_release("a").await.unwrap() });
    held.says("release");
    assert_eq!(held.is_told("lost")["cause"], "taken");
    assert_eq!(held.ends().status, 76);
}

#[test]
fn a_parent_that_hangs_loses_it_if_that_is_asked_for() {
    let site = Site::new();
    let mut held = Held::granted(&site, &["--progress-within", "2s"]);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(4) {
        held.says("progress");
        std::thread::sleep(Duration::from_millis(100));
    }
    held.says("check");
    held.is_told("held");
    assert_eq!(held.is_told("lost")["cause"], "no_progress");
    is_free(&site, "a");
    assert_eq!(held.ends().status, 76);
}

#[test]
fn a_process_that_was_stopped_says_so() {
    let site = Site::new();
    // A stop is the reason of losses within a lease after it: long enough for a busy machine to find the loss.
    let held = Held::granted(&site, &["--ttl", "3s"]);
    held.run.signal(Signal::STOP);
    assert_eq!(site.finish(&["run", "--wait", "20s", "a", "--", "true"]).status, 0);
    std::thread::sleep(Duration::from_millis(500));
    held.run.signal(Signal::CONT);
    let lost = loop {
        // Its doubt may come before.
        let line = held.lines.recv_timeout(TIMEOUT).unwrap();
        let told: Value = serde_json::from_str(&line).unwrap();
        if told["event"] != "suspect" {
            break told;
        }
    };
    assert_eq!((&lost["event"], &lost["cause"]), (&"lost".into(), &"expired".into()), "{lost}");
    assert!(lost["message"].as_str().unwrap().contains("this process was stopped for"), "{lost}");
    assert_eq!(held.ends().status, 76);
}

#[test]
fn a_lock_that_is_not_obtained_is_refused() {
    let site = Site::new();
    let holder = site.holder("a", &["--label", "job 7"]);
    for (options, part) in
        [(&["--wait", "200ms"][..], "not obtained within"), (&["--no-wait", "-q"], "job 7")]
    {
        let held = Held::start(&mut site.lockwell(&[&["hold", "--json", "a"], options].concat()));
        let refused = held.is_told("refused");
        assert_eq!(refused["exit_status"], 75);
        assert!(refused["message"].as_str().unwrap().contains(part), "{refused}");
        let run = held.ends();
        assert_eq!((run.status, run.err.is_empty()), (75, options.contains(&"-q")), "{run:?}");
    }
    // It may change its mind.
    let mut held = Held::start(&mut site.lockwell(&["hold", "--json", "a"]));
    wait_until("a waiter", || site.waiters("a") == 1);
    held.says("check");
    let waiting = &held.is_told("waiting")["locks"][0];
    let label = |list: &str| waiting[list][0]["label"].as_str().map(str::to_owned);
    assert_eq!((&waiting["name"], label("holders").as_deref()), (&"a".into(), Some("job 7")), "{waiting}");
    assert!(label("waiting").is_some_and(|label| label != "job 7"), "{waiting}");
    held.says("release");
    assert_eq!(held.is_told("released")["cause"], "asked");
    assert_eq!(site.waiters("a"), 0);
    assert_eq!(held.ends().status, 0);
    site.end(holder);
}

#[test]
fn several_locks_readers_and_permits() {
    let site = Site::new();
    let held = Held::start(&mut site.lockwell(&["hold", "--json", "b", "a", "c"]));
    let granted = held.is_told("granted");
    let locks = granted["locks"].as_array().unwrap();
    let names: Vec<_> = locks.iter().map(|lock| lock["name"].as_str().unwrap()).collect();
    assert_eq!((granted["name"].as_str().unwrap(), names), ("b", vec!["a", "b", "c"]));
    for name in ["a", "b", "c"] {
        site.finish(&["run", "--no-wait", name, "--", "true"]).complains(75, "is held by");
    }
    block_on(async { site.locks().await.force_release("c").await.unwrap() });
    assert_eq!(held.is_told("lost")["name"], "c");
    assert_eq!(held.ends().status, 76);
    for name in ["a", "b", "c"] {
        is_free(&site, name);
    }
    for (options, third) in [(&["--read"][..], "granted"), (&["--permits", "2"], "refused")] {
        let name = &options[0][2..];
        let hold = || {
            Held::start(&mut site.lockwell(&[&["hold", "--json", "--no-wait"], options, &[name]].concat()))
        };
        let two = [hold(), hold()];
        for held in &two {
            held.is_told("granted");
        }
        hold().is_told(third);
    }
    let run = Held::start(&mut site.lockwell(&["hold", "--read", "a", "b"])).ends_with_lines();
    assert_eq!(run, ["refused: --read and --permits are for one lock"]);
}

impl Held {
    fn ends_with_lines(mut self) -> Vec<String> {
        self.input = None;
        self.lines.iter().collect()
    }
}

#[test]
fn it_speaks_to_people_too() {
    let site = Site::new();
    let mut held = Held::start(&mut site.lockwell(&["hold", "a"]));
    let first = held.lines.recv_timeout(TIMEOUT).unwrap();
    assert!(first.starts_with("granted: \"a\" with token "), "{first}");
    held.says("check");
    let lines = held.ends_with_lines();
    assert!(lines.len() == 2 && lines[0].starts_with("held: valid for "), "{lines:?}");
    assert_eq!(lines[1], "released: input ended");
}

/// Neither of the outputs is read, and both are full: the lock is held all the same, and its loss ends
/// lockwell.
#[test]
fn a_parent_that_reads_nothing_blocks_nothing() {
    let site = Site::new();
    let mut command = site.lockwell(&["hold", "--json", "--ttl", "2s", "a"]);
    let mut run = Running::start(command.env("RUST_LOG", "trace").stdin(Stdio::piped()));
    let (mut input, output) = (run.input(), run.output());
    let mut output = BufReader::new(output);
    output.read_line(&mut String::new()).unwrap();
    // More than a pipe takes of answers, and of the log about them.
    for _ in 0..4000 {
        input.write_all(b"check\n").unwrap();
    }
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(5) {
        site.finish(&["run", "--no-wait", "a", "--", "true"]).complains(75, "is held by");
        std::thread::sleep(Duration::from_millis(200));
    }
    block_on(async { site.locks().await.force_release("a").await.unwrap() });
    // A parent that begins to read learns what it needs.
    std::thread::sleep(Duration::from_millis(1500));
    let (all, lines) = channel();
    std::thread::spawn(move || all.send(output.lines().map(Result::unwrap).collect::<Vec<_>>()));
    let lines = lines.recv_timeout(TIMEOUT).expect("the end of the output");
    assert!(lines.last().unwrap().contains(r#""event":"lost""#), "{:?}", lines.last());
    assert!(lines.len() > 1000 && lines.len() < 4000, "{}", lines.len());
    assert_eq!(run.finish().status, 76);
}

/// On a server that can be away.
#[test]
#[cfg(feature = "postgres")]
fn doubt_and_its_end_are_told() {
    block_on(async {
        let Some(server) = crate::servers::postgres().await else { return };
        let mut command = crate::support::lockwell(&["hold", "--json", "--ttl", "6s", "a"]);
        let held = Held::start(command.env("LOCKWELL_URL", server.url()));
        held.is_told("granted");
        server.pause().unwrap();
        let suspect = held.is_told("suspect");
        assert!(suspect["valid_ms"].as_u64().unwrap() < 6000, "{suspect}");
        server.resume().unwrap();
        held.is_told("recovered");
        server.kill().unwrap();
        held.is_told("suspect");
        let lost = held.is_told("lost");
        assert_eq!(lost["cause"], "expired");
        assert!(lost["message"].as_str().unwrap().contains("the last renewal failed: "), "{lost}");
        assert_eq!(held.ends().status, 76);
    });
}
