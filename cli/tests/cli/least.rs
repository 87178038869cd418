//! `--at-least` when lockwell is killed: the lock outlives it at the server.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::{Running, Site, block_on, finish, is_alive, pid_of, wait_until};

const LEAST: Duration = Duration::from_secs(5);

/// Kills lockwell while its command runs, or after that while it keeps the lock, and waits until another has
/// the lock.
fn outlives_a_kill(url: &str) {
    for (name, script) in [("during", "echo $$ > pid; exec sleep 60"), ("after", "echo $$ > pid")] {
        let site = Site::new();
        let at = |args: &[&str]| {
            let mut command = site.lockwell(args);
            command.env("LOCKWELL_URL", url);
            command
        };
        // The ttl alone would free the lock far earlier.
        let args = ["run", "--ttl", "500ms", "--at-least", "5s", name, "--", "sh", "-c", script];
        let began = Instant::now();
        let run = Running::start(&mut at(&args));
        let command = pid_of(site.wait_for_file("pid").parse().unwrap());
        if name == "after" {
            wait_until("the end of the command", || !is_alive(command));
        }
        run.signal(Signal::KILL);
        let killed = Instant::now();
        assert_eq!(run.finish().status, -1, "{name}");
        finish(&mut at(&["run", "--no-wait", name, "--", "true"])).complains(75, "is held by");
        let next = finish(&mut at(&["run", "--wait", "15s", name, "--", "true"]));
        assert_eq!(next.status, 0, "{name}: {next:?}");
        // It was obtained after it began, and rounding may take a few milliseconds.
        let took = began.elapsed();
        assert!(took + Duration::from_millis(20) > LEAST, "{name}: {took:?}");
        // No renewal came after the kill. The rest is for a machine with other work.
        let took = killed.elapsed();
        assert!(took < LEAST + Duration::from_secs(10), "{name}: {took:?}");
    }
}

#[test]
#[cfg(feature = "redis")]
fn the_least_time_outlives_a_kill_on_redis() {
    use testbed::{Redis, if_installed};
    block_on(async {
        let Some(server) = if_installed(Redis::start_with(&crate::everyday::options()).await) else { return };
        outlives_a_kill(&server.url());
    });
}

#[test]
#[cfg(feature = "postgres")]
fn the_least_time_outlives_a_kill_on_postgresql() {
    block_on(async {
        let Some(server) = crate::servers::postgres().await else { return };
        outlives_a_kill(&server.url());
    });
}
