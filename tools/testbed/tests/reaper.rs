//! Nothing stays behind when the process that started a server is killed.

use std::{
    env,
    io::{BufRead, BufReader},
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process_group};
use testbed::{Options, Postgres, is_installed};

/// Set in the process that starts a server and waits to be killed. Its value says which.
const VICTIM: &str = "TESTBED_VICTIM";

const TIMEOUT: Duration = Duration::from_secs(30);

/// Not a test: the process that the others start and kill.
#[tokio::test]
async fn victim() {
    let Some(kind) = env::var_os(VICTIM) else { return };
    if kind == "early" {
        // Killed while the data folder is still being made, without one that was made before.
        println!("\nSERVER 0 {}", env::temp_dir().display());
        Postgres::start_with(&Options::new().measured()).await.map(drop).expect("starts");
    }
    let server = Postgres::start().await.expect("starts");
    println!("\nSERVER {} {}", server.pid().expect("runs"), server.folder().display());
    std::future::pending::<()>().await;
}

/// Ctrl-C goes to the whole group of processes, and must not end the supervisor before it has cleaned up.
#[test]
fn a_server_goes_with_its_owner() {
    if is_installed(Postgres::installed()) {
        owner_is_killed(Signal::KILL);
        owner_is_killed(Signal::INT);
    }
}

/// The owner dies at a time when there is no server yet, only `initdb` at work.
#[test]
fn half_made_servers_go_too() {
    if !is_installed(Postgres::installed()) {
        return;
    }
    let parent = parent();
    for milliseconds in [20, 150, 400] {
        let (_, _, kill) = start("early", parent.path());
        thread::sleep(Duration::from_millis(milliseconds));
        kill(Signal::KILL);
        eventually("the folder is empty", || {
            parent.path().read_dir().is_ok_and(|mut entries| entries.next().is_none())
        });
    }
}

fn owner_is_killed(signal: Signal) {
    let parent = parent();
    let (pid, folder, kill) = start("late", parent.path());
    assert!(Path::new(&folder).is_dir() && exists(pid), "it runs");
    assert!(folder.starts_with(parent.path().to_str().expect("text")), "{folder}");
    let segment = segment(&folder);
    kill(signal);
    eventually("the server has gone", || !exists(pid));
    eventually("its folder has gone", || !Path::new(&folder).exists());
    eventually("its shared memory has gone", || !segment_exists(&segment));
}

/// A folder for the victim's temporary ones.
fn parent() -> tempfile::TempDir {
    let parent = tempfile::tempdir().expect("a folder");
    // Postgres runs under another user, who has to get through.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(parent.path(), open).expect("permissions");
    parent
}

/// Starts a victim, and returns what it says about its server and a way to kill its whole group.
fn start(kind: &str, temporary: &Path) -> (u32, String, impl FnOnce(Signal) + use<>) {
    let mut child = Command::new(env::current_exe().expect("our own path"))
        .args(["victim", "--exact", "--nocapture"])
        .env(VICTIM, kind)
        .env("TMPDIR", temporary)
        .process_group(0)
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let output = BufReader::new(child.stdout.take().expect("piped"));
    let line = output.lines().map_while(Result::ok).find(|line| line.starts_with("SERVER "));
    let line = line.expect("the victim says which server it has");
    let mut words = line.split(' ').skip(1);
    let pid = words.next().and_then(|word| word.parse().ok()).expect("a process id");
    let folder = words.next().expect("a folder").to_owned();
    let kill = move |signal| {
        let group = Pid::from_child(&child);
        kill_process_group(group, signal).expect("killed");
        child.wait().expect("ended");
    };
    (pid, folder, kill)
}

fn eventually(what: &str, done: impl Fn() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !done() {
        assert!(Instant::now() < deadline, "not within {TIMEOUT:?}: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

fn exists(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

/// The id of the System V segment of a running Postgres. Nobody else removes it when Postgres is killed.
fn segment(folder: &str) -> String {
    let file = std::fs::read_to_string(format!("{folder}/data/postmaster.pid")).expect("a file");
    let id = file.lines().nth(6).and_then(|line| line.split_whitespace().last()).expect("an id").to_owned();
    assert!(segment_exists(&id));
    id
}

fn segment_exists(id: &str) -> bool {
    let list = std::fs::read_to_string("/proc/sysvipc/shm").expect("a list");
    list.lines().any(|line| line.split_whitespace().nth(1) == Some(id))
}
