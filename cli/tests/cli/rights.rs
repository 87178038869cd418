//! One SQLite file for several users of a host, as docs/production.md says. Only root can become other users.

use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::{Finished, Running, Site, finish, wait_until};

/// Users and groups that nobody has.
const ANN: u32 = 64_101;
const BOB: u32 = 64_102;
const STRANGER: u32 = 64_103;
const GROUP: u32 = 64_201;

/// A copy of the program that every user may execute, and a folder of the group.
struct Shared {
    site: Site,
    program: PathBuf,
}

fn mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

impl Shared {
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            testbed::cannot_run("", "only root can become other users");
            return None;
        }
        let site = Site::new();
        mode(&site.path(""), 0o755);
        let program = site.path("lockwell");
        std::fs::copy(env!("CARGO_BIN_EXE_lockwell"), &program).unwrap();
        let folder = site.path("shared");
        std::fs::create_dir(&folder).unwrap();
        chown(&folder, None, Some(GROUP)).unwrap();
        mode(&folder, 0o2770);
        Some(Self { site, program })
    }

    fn file(&self) -> PathBuf {
        self.site.path("shared/locks.db")
    }

    fn lockwell(&self, user: u32, group: u32, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        // The groups of root go with its id.
        command.args(args).uid(user).gid(group).env_clear().current_dir("/");
        command.env("LOCKWELL_URL", format!("sqlite://{}", self.file().display()));
        command.env("PATH", std::env::var("PATH").unwrap());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, user: u32, group: u32) -> Finished {
        finish(&mut self.lockwell(user, group, &["run", "--no-wait", "a", "--", "true"]))
    }
}

#[test]
fn users_of_a_group_share_a_file_that_was_made_for_it() {
    let Some(shared) = Shared::new() else { return };
    std::fs::write(shared.file(), "").unwrap();
    chown(shared.file(), None, Some(GROUP)).unwrap();
    mode(&shared.file(), 0o660);
    let script = ["run", "--label", "job of ann", "a", "--", "sleep", "60"];
    let holder = Running::start(&mut shared.lockwell(ANN, GROUP, &script));
    let status = || finish(&mut shared.lockwell(BOB, GROUP, &["status", "a"])).out;
    wait_until("ann", || status().contains("job of ann"));
    shared.run(BOB, GROUP).complains(75, "job of ann");
    let waiting = Running::start(&mut shared.lockwell(BOB, GROUP, &["run", "a", "--", "true"]));
    wait_until("a waiter", || status().contains("1 waits"));
    holder.signal(rustix::process::Signal::TERM);
    assert_eq!(holder.finish().status, 143);
    assert_eq!(waiting.finish().status, 0);
    // The files of the log belong to whoever came first, and to the group.
    for user in [ANN, BOB, ANN] {
        let run = shared.run(user, GROUP);
        assert_eq!((run.status, run.err.as_str()), (0, ""));
    }
    let refused = shared.run(STRANGER, STRANGER);
    refused.complains(77, "this user may not open the database file");
}

#[test]
fn a_right_that_is_missing_is_named() {
    let Some(shared) = Shared::new() else { return };
    // SQLite makes a file for one user.
    assert_eq!(shared.run(ANN, GROUP).status, 0);
    shared.run(BOB, GROUP).complains(77, "this user may not write to the database file");
    mode(&shared.file(), 0o666);
    // No log can be made. That of ann may have gone with her process.
    for end in ["-wal", "-shm"] {
        drop(std::fs::remove_file(format!("{}{end}", shared.file().display())));
    }
    let folder = shared.site.path("shared");
    mode(&folder, 0o555);
    shared.run(BOB, GROUP).complains(77, "this user may not write to the database file");
}
