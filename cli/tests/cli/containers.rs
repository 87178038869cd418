//! lockwell as the first process of a container, and its helpers.

use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Signal, kill_process};

use crate::support::{Finished, Running, Site, finish, is_alive, lockwell, pid_of, wait_until};

/// The value of an instruction of the Dockerfile.
fn instruction(name: &str) -> &'static str {
    let lines = include_str!("../../Dockerfile").lines();
    let mut values = lines.filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    values.next().unwrap_or_else(|| panic!("no {name}"))
}

/// The libraries that a program loads. The static program of `cargo xtask package` needs none.
fn libraries(program: &str) -> Vec<String> {
    let found = Command::new("ldd").arg(program).output().unwrap();
    let found = String::from_utf8(found.stdout).unwrap();
    found.split_whitespace().filter(|word| word.starts_with('/')).map(str::to_owned).collect()
}

/// Makes the root of the image by the instructions of its Dockerfile.
fn image(root: &Path) {
    assert_eq!(instruction("FROM"), "scratch");
    let put = |from: &str, to: &str| {
        let to = root.join(to.trim_start_matches('/'));
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(from, to).unwrap();
    };
    let program = env!("CARGO_BIN_EXE_lockwell");
    let (from, to) = instruction("COPY").split_once(' ').unwrap();
    assert_eq!(from, "lockwell");
    put(program, to);
    for library in libraries(program) {
        put(&library, &library);
    }
}

/// Starts the image as a container runtime does: with `/proc`, `/dev`, a folder that is mounted at `/data`,
/// and the user and the program that the Dockerfile names. `None`: these rights are missing here.
fn contained(site: &Site, args: &[&str]) -> Option<Finished> {
    let (user, group) = instruction("USER").split_once(':').unwrap();
    let entry = instruction("ENTRYPOINT").trim_matches(['[', ']', '"']);
    let script = format!(
        "set -e; mkdir -p root/proc root/dev root/data; mount -t proc proc root/proc; mount --rbind /dev root/dev
         mount --bind data root/data; exec chroot --userspec={user}:{group} root {entry} \"$@\""
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "sh", "-c", &script, "sh"]).args(args);
    command.current_dir(site.path("")).env_clear().env("PATH", std::env::var("PATH").unwrap());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let run = finish(&mut command);
    if run.status == 1 && ["unshare", "mount", "chroot"].iter().any(|name| run.err.starts_with(name)) {
        testbed::cannot_run("", &run.err);
        return None;
    }
    Some(run)
}

/// There is no other program in it, so lockwell runs itself.
#[test]
#[cfg(target_os = "linux")]
fn the_image_locks_on_a_mounted_file() {
    let site = Site::new();
    image(&site.path("root"));
    std::fs::create_dir(site.path("data")).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(site.path("data"), mode).unwrap();
    let Some(run) = contained(&site, &["--version"]) else { return };
    assert!(run.status == 0 && run.out.starts_with("lockwell "), "{run:?}");
    let url = "sqlite:///data/locks.db";
    let holds = ["run", "--url", url, "a", "--", "/usr/bin/lockwell", "status", "--url", url, "a"];
    let run = contained(&site, &holds).expect("as before");
    assert!(run.status == 0 && run.out.contains("a: held"), "{run:?}");
    // From outside, on the same file.
    let outside = format!("sqlite://{}", site.path("data/locks.db").display());
    let run = finish(&mut lockwell(&["status", "--url", &outside, "--json", "a"]));
    assert!(run.status == 0 && run.out.replace(' ', "").contains("\"held\":false"), "{run:?}");
}

/// Runs this script under a lock, as process 1. `None`: these rights are missing here.
fn as_process_1(site: &Site, options: &[&str], script: &str) -> Option<Finished> {
    let program = env!("CARGO_BIN_EXE_lockwell");
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc", program, "run", "--url", &site.url()]);
    command.args(options).args(["a", "--", "sh", "-c", script]).env_remove("LOCKWELL_HELD");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let run = finish(&mut command);
    if run.status == 1 && run.err.contains("unshare") {
        testbed::cannot_run("", &run.err);
        return None;
    }
    Some(run)
}

/// Orphans of the command are given to process 1. It must collect them, or they stay as zombies.
#[test]
#[cfg(target_os = "linux")]
fn process_1_collects_orphans() {
    let site = Site::new();
    // Orphans that end at once, and one that the command waits for.
    let script = "for n in 1 2 3; do sh -c 'sleep 0.1 & exit'; done; sleep 1; grep -l '^State:.Z' /proc/[0-9]*/status | wc -l; exit 7";
    let Some(run) = as_process_1(&site, &[], script) else { return };
    assert_eq!((run.out.trim(), run.status), ("0", 7), "{run:?}");
}

/// A command that is ended with all that it has started leaves zombies to process 1, which are not waited
/// for.
#[test]
#[cfg(target_os = "linux")]
fn process_1_collects_what_it_ends() {
    let site = Site::new();
    // The grace is longer than what a test waits for.
    let options = ["--max-hold", "500ms", "--grace", "60s"];
    let Some(run) = as_process_1(&site, &options, "sleep 100 & sleep 101 & wait") else { return };
    assert_eq!(run.status, 76, "{run:?}");
}

/// The system does not deliver signals to process 1 that it has not asked for.
#[test]
#[cfg(target_os = "linux")]
fn process_1_can_be_ended_while_it_looks() {
    let site = Site::new();
    let holder = site.holder("a", &[]);
    for command in [&["wait", "a"][..], &["status", "--watch", "a"], &["top"]] {
        let mut outside = Command::new("unshare");
        outside.args(["--pid", "--fork", "--mount-proc", env!("CARGO_BIN_EXE_lockwell"), command[0]]);
        outside.args(["--url", &site.url()]).args(&command[1..]);
        outside.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut run = Running::start(&mut outside);
        let unshare = run.pid();
        let handlers = || {
            let status = std::fs::read_to_string(format!("/proc/{}/status", child_of(unshare)?)).ok()?;
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"))?.trim();
            u64::from_str_radix(caught, 16).ok()
        };
        // TERM is signal 15.
        wait_until("its handler, or its end", || {
            handlers().is_some_and(|set| set & 1 << 14 != 0) || !run.is_running()
        });
        let Some(inside) = child_of(unshare) else {
            let run = run.finish();
            assert!(run.err.contains("unshare"), "{run:?}");
            return testbed::cannot_run("", &run.err);
        };
        kill_process(pid_of(inside), Signal::TERM).unwrap();
        assert_eq!(run.finish().status, 143, "{command:?}");
    }
    site.end(holder);
}

/// The only child of a process.
#[cfg(target_os = "linux")]
fn child_of(parent: rustix::process::Pid) -> Option<u32> {
    let parent = parent.as_raw_nonzero();
    let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

#[test]
#[cfg(target_os = "linux")]
fn the_helpers_have_names() {
    let site = Site::new();
    let holder = site.holder("a", &[]);
    let names = || {
        let children = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
            let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let stat = crate::support::stat(pid_of(pid));
            (stat.get(1)? == &holder.pid().as_raw_nonzero().to_string())
                .then(|| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default())
        });
        children.collect::<Vec<_>>()
    };
    wait_until("the name of the watcher", || names().iter().any(|name| name.trim() == "lockwell-watch"));
    assert!(!names().iter().any(|name| name.trim() == "exe"), "{:?}", names());
    assert!(is_alive(holder.pid()));
    site.end(holder);
    drop(lockwell(&[]));
}
