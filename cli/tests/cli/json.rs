//! `--json`: what is printed for programs is what the guide says.

use std::process::Stdio;

use serde_json::Value;

use crate::support::{Finished, Running, Site, finish, wait_until};

/// The line of the table in the guide for a verb: the fields that its report always has, and those that it
/// may have.
fn fields(verb: &str) -> (Vec<String>, Vec<String>) {
    let guide = include_str!("../../../docs/command.md");
    let mut cells = guide.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    let (_, told) = cells.rfind(|(first, _)| *first == verb).expect("a line of the guide");
    let told: Vec<_> = told.trim_end_matches(" |").split(" | ").collect();
    let words = |text: &str| text.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    (words(told[0]), words(told.get(1).unwrap_or(&"")))
}

/// Checks the fields of one report against the guide, and its version.
#[track_caller]
pub(crate) fn is_as_told(verb: &str, report: &Value) {
    let (always, sometimes) = fields(verb);
    assert!(always.contains(&"schema_version".to_owned()), "{verb}: {always:?}");
    let keys: Vec<_> = report.as_object().expect("an object").keys().cloned().collect();
    for field in &always {
        assert!(keys.contains(field), "{verb} has no {field}: {report}");
    }
    for key in &keys {
        assert!(always.contains(key) || sometimes.contains(key), "{verb}: {key} is not in the guide");
    }
    assert_eq!(report["schema_version"], 1, "{report}");
}

fn report(verb: &str, run: &Finished) -> Value {
    let report = serde_json::from_str(&run.out).unwrap_or_else(|error| panic!("{verb}: {error}: {run:?}"));
    is_as_told(verb, &report);
    report
}

/// The messages on standard error, each a line.
fn messages(run: &Finished) -> Vec<Value> {
    let one = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {run:?}"));
    let messages: Vec<Value> = run.err.lines().map(one).collect();
    for message in &messages {
        is_as_told("messages", message);
    }
    messages
}

/// Checks that one message is an error with the exit status of lockwell. A warning of the library's may come later.
#[track_caller]
fn fails(run: &Finished, status: i32, part: &str) {
    assert_eq!(run.status, status, "{run:?}");
    let messages = messages(run);
    let error = messages.iter().find(|one| one["severity"] == "error").expect("an error");
    assert_eq!(error["exit_status"], status, "{error}");
    assert!(error["message"].as_str().unwrap().contains(part), "{error}");
}

#[test]
fn a_wait() {
    let site = Site::new().prepared();
    let free = report("wait", &site.finish(&["wait", "--json", "a"]));
    assert_eq!((&free["held"], &free["holders"]), (&false.into(), &Value::Array(vec![])));
    let holder = site.holder("a", &["--label", "job 7"]);
    let late = site.finish(&["wait", "--json", "a", "--for", "200ms"]);
    let held = report("wait", &late);
    assert_eq!((&held["held"], &held["holders"][0]["label"]), (&true.into(), &"job 7".into()));
    assert!(held["waited_ms"].as_u64().unwrap() >= 200, "{held}");
    fails(&late, 75, "held by job 7");
    site.end(holder);
}

#[test]
fn a_release_by_its_handle() {
    let site = Site::new();
    let taken = report("acquire", &site.finish(&["acquire", "--json", "--for", "1m", "a"]));
    let handle = taken["handle"].as_str().unwrap();
    let freed = report("release", &site.finish(&["release", "--json", handle]));
    assert_eq!((&freed["released"], &freed["by_force"]), (&true.into(), &false.into()));
    assert!(!freed.to_string().contains(handle), "whoever knows the handle can free the lock");
    // It is another's now.
    let holder = site.holder("a", &[]);
    let late = site.finish(&["release", "--json", handle]);
    assert_eq!(report("release", &late)["released"], false);
    fails(&late, 76, "not held any more");
    site.end(holder);
    fails(&site.finish(&["release", "--json", "a"]), 64, "no handle");
}

#[test]
fn a_release_by_force() {
    let site = Site::new();
    let holder = site.holder("a", &["--ttl", "3s", "--label", "job 7", "--json"]);
    fails(&site.finish(&["release", "--json", "--force", "a"]), 64, "--yes");
    let run = site.finish(&["release", "--json", "--force", "--yes", "a"]);
    let freed = report("release", &run);
    assert_eq!((&freed["released"], &freed["by_force"]), (&true.into(), &true.into()));
    assert_eq!(freed["holders"][0]["label"], "job 7");
    let [warning] = &messages(&run)[..] else { panic!("{run:?}") };
    assert_eq!(warning["severity"], "warning");
    // The holder is told, and says so in the same form.
    fails(&holder.finish(), 76, "lost the lock");
    let run = site.finish(&["release", "--json", "--force", "--yes", "a"]);
    let free = report("release", &run);
    assert_eq!((&free["released"], &free["holders"]), (&false.into(), &Value::Array(vec![])));
    fails(&run, 76, "is not held");
}

#[test]
fn what_a_run_says_of_itself() {
    let site = Site::new();
    let run = site.finish(&["run", "--json", "-v", "a", "--", "sh", "-c", "echo out; echo err >&2; exit 3"]);
    assert_eq!((run.status, run.out.as_str()), (3, "out\n"));
    // The command writes what it likes.
    let own = Finished { err: run.err.replace("err\n", ""), ..run };
    let said = messages(&own);
    assert!(said.len() >= 2 && said.iter().all(|one| one["severity"] == "info"), "{own:?}");
    let holder = site.holder("a", &["--label", "job 7"]);
    let refused = site.finish(&["run", "--json", "--no-wait", "--exit-code-held", "9", "a", "--", "true"]);
    fails(&refused, 9, "held by job 7");
    let mut relative = site.lockwell(&["run", "--json", "--no-wait", "a", "--", "true"]);
    let warned = finish(relative.env("LOCKWELL_URL", "sqlite://locks.db"));
    assert_eq!(messages(&warned)[0]["severity"], "warning");
    fails(&warned, 75, "held by job 7");
    fails(&site.finish(&["run", "--json", "a", "--", "no-such-command"]), 127, "no-such-command");
    fails(&site.finish(&["lead", "--json", "--url", "memory://", "a", "--", "true"]), 64, "excludes nobody");
    let waiting = Running::start(&mut site.lockwell(&["lead", "--json", "-v", "a", "--", "true"]));
    wait_until("a waiter", || site.waiters("a") == 1);
    site.end(holder);
    let led = waiting.finish();
    assert_eq!(led.status, 0, "{led:?}");
    assert!(messages(&led).iter().any(|one| one["message"].as_str().unwrap().contains("got \"a\"")));
}

#[test]
fn the_other_verbs() {
    let site = Site::new().prepared();
    let schema = report("schema", &site.finish(&["schema", "--json"]));
    assert_eq!(schema["statements"].as_str().unwrap(), site.finish(&["schema"]).out);
    let one = report("status NAME", &site.finish(&["status", "--json", "a"]));
    assert_eq!(one["held"], false);
    let many = report("status", &site.finish(&["status", "--json"]));
    assert_eq!(many["locks"], Value::Array(vec![]));
    let none = site.finish(&["record", "--json", "a"]);
    assert_eq!(none.status, 1, "{none:?}");
    let doctor = report("doctor", &site.finish(&["doctor", "--json", "--look-only"]));
    let (always, _) = fields("findings");
    assert!(always.iter().all(|field| doctor["findings"][0].get(field).is_some()), "{doctor}");
    fails(&site.finish(&["status", "--json", "--url", "sqlite:///no/such/file.db"]), 69, "no lock file");
}

/// A holder and those who wait for it are told in the same fields by all verbs that tell of a lock.
#[test]
fn holders_and_waiters() {
    let site = Site::new();
    let holder = site.holder("a", &["--permits", "1"]);
    let mut waiter = site.lockwell(&["run", "--permits", "1", "a", "--", "true"]);
    let waiter = Running::start(waiter.stderr(Stdio::null()));
    wait_until("a waiter", || site.waiters("a") == 1);
    let one = report("status NAME", &site.finish(&["status", "--json", "a"]));
    assert!(one["longest_wait_ms"].is_u64(), "{one}");
    let (always, sometimes) = fields("holders");
    let keys: Vec<_> = one["holders"][0].as_object().unwrap().keys().cloned().collect();
    assert!(always.iter().chain(&sometimes).all(|field| keys.contains(field)), "{keys:?}");
    assert_eq!(keys.len(), always.len() + sometimes.len(), "{keys:?}");
    site.end(holder);
    assert_eq!(waiter.finish().status, 0);
}

/// What says so is not lockwell itself, but the process that becomes the command.
#[test]
fn a_command_that_cannot_be_executed() {
    let site = Site::new();
    let script = site.path("script");
    std::fs::write(&script, "#!/no/such/program\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, mode).unwrap();
    let run = site.finish(&["run", "--json", "a", "--", script.to_str().unwrap()]);
    fails(&run, 127, "its first line names");
}
