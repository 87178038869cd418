//! A system that starts no more threads, as with a limit of processes. Only root can become a user of whom
//! nothing else runs.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::everyday::options;
use crate::support::{Finished, Site, block_on, finish, lockwell};

/// A user of this test alone.
const USER: u32 = 64_104;

/// Whatever thread is refused, the command says so, and nothing panics.
#[test]
fn a_thread_that_is_refused_is_an_error() {
    if !rustix::process::geteuid().is_root() {
        return testbed::cannot_run("", "only root can become other users");
    }
    let site = Site::new();
    let program = site.path("lockwell");
    std::fs::copy(env!("CARGO_BIN_EXE_lockwell"), &program).unwrap();
    for path in [site.path(""), program.clone()] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    // `shared` is a folder in which that user may make the file of the locks.
    let shared = site.path("shared");
    std::fs::create_dir(&shared).unwrap();
    std::fs::set_permissions(&shared, std::fs::Permissions::from_mode(0o777)).unwrap();
    let with = |verb: &[&str], threads: u32, url: &str| {
        let limit = format!("--nproc={threads}");
        let mut command = Command::new("prlimit");
        command.arg(limit).arg(&program).args(verb).uid(USER).gid(USER);
        let like = lockwell(&[]);
        for (name, _) in like.get_envs() {
            command.env_remove(name);
        }
        command.env("LOCKWELL_URL", url).env_remove("RUST_BACKTRACE").current_dir("/");
        command.stdin(std::process::Stdio::null());
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        finish(&mut command)
    };
    let each = |url: &str| {
        for verb in [
            &["acquire", "--for", "5s", "--wait", "1s", "a"][..],
            &["run", "--wait", "5s", "a", "--", "true"],
        ] {
            let ends: Vec<Finished> = (1..=8).map(|threads| with(verb, threads, url)).collect();
            for (threads, end) in (1..).zip(&ends) {
                println!("{url} with {threads}: {} {}", end.status, end.err.trim_end());
                // A crate below the client crate of ZooKeeper panics by itself, in a task.
                let is_calm = url.starts_with("zk") || !end.err.contains("panicked");
                assert!(end.status != 101 && is_calm, "{threads} threads: {end:?}");
            }
            assert!(ends.iter().any(|end| end.err.contains("cannot be started")), "{ends:?}");
        }
    };
    each(&format!("sqlite://{}", shared.join("locks.db").display()));
    block_on(async {
        if let Some(server) = testbed::if_installed(testbed::Postgres::start_with(&options()).await) {
            each(&server.url());
        }
        if let Some(server) = testbed::if_installed(testbed::MariaDb::start_with(&options()).await) {
            each(&server.url());
        }
        // By their names, which need a thread for the look-up.
        if let Some(server) = testbed::if_installed(testbed::Redis::start_with(&options()).await) {
            each(&server.url().replace("127.0.0.1", "localhost"));
        }
        if let Some(server) = testbed::if_installed(testbed::ZooKeeper::start_with(&options()).await) {
            each(&server.url());
        }
        if let Some(server) = testbed::if_installed(testbed::Etcd::start_with(&options()).await) {
            each(&server.url().replace("127.0.0.1", "localhost"));
        }
    });
}
