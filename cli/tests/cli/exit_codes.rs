//! What the exit status says.

use std::time::{Duration, Instant};

use crate::support::{Site, block_on, finish, lockwell};

#[test]
fn the_status_of_the_command_is_passed_on() {
    let site = Site::new();
    for (script, status) in
        [("exit 0", 0), ("exit 1", 1), ("exit 42", 42), ("kill -KILL $$", 137), ("kill -TERM $$", 143)]
    {
        let run = site.finish(&["run", "a", "--", "sh", "-c", script]);
        assert_eq!((run.status, run.err.as_str()), (status, ""), "{script}");
    }
}

#[test]
fn output_and_arguments_are_passed_on() {
    let site = Site::new();
    let run =
        site.finish(&["run", "a", "--", "sh", "-c", "echo \"$@\"; echo bad >&2", "sh", "--wait", "x y"]);
    assert_eq!((run.out.as_str(), run.err.as_str()), ("--wait x y\n", "bad\n"));
}

#[test]
fn wrong_usage_is_64() {
    for args in [&["run"][..], &["run", "a", "true"], &["run", "a\nb", "--", "true"], &["stat"], &[]] {
        assert_eq!(finish(&mut lockwell(args)).status, 64, "{args:?}");
    }
    for args in [&["--help"][..], &["--version"], &["run", "--help"]] {
        let run = finish(&mut lockwell(args));
        assert_eq!((run.status, run.err.as_str()), (0, ""), "{args:?}");
    }
}

#[test]
fn a_wrong_address_is_64() {
    let run = |url: &str| finish(lockwell(&["run", "a", "--", "true"]).env("LOCKWELL_URL", url));
    run("").complains(64, "LOCKWELL_URL");
    run("locks.db").complains(64, "starts with a scheme");
    run("mongodb://host").complains(64, "no backend is known for mongodb://");
    run("memory://").complains(64, "excludes nobody outside of this process");
    run("sqlite:///tmp/x.db?tll=3s").complains(64, "\"tll\"");
    finish(&mut lockwell(&["run", "a", "--", "true"])).complains(64, "--url");
}

#[test]
fn a_ttl_or_a_mode_that_the_backend_does_not_have_is_64() {
    let site = Site::new();
    site.finish(&["run", "--ttl", "1ms", "a", "--", "true"]).complains(64, "ttl");
    site.finish(&["run", "--label", &"x".repeat(300), "a", "--", "true"]).complains(64, "label");
}

#[test]
fn the_password_is_not_printed() {
    let url = "postgres://ann:hunter2@127.0.0.1:1/app";
    for args in [
        &["run", "--url", url, "--wait", "1s", "a", "--", "true"][..],
        &["status", "--url", url, "a"],
        &["status", "a", url],
        &["run", "--help"],
        &["run"],
    ] {
        let run = finish(lockwell(args).env("LOCKWELL_URL", url).env("RUST_LOG", "debug"));
        assert!(!format!("{run:?}").contains("hunter2"), "{args:?}: {run:?}");
    }
}

#[test]
fn a_held_lock_is_75() {
    let site = Site::new();
    block_on(async {
        let locks = site.locks().await;
        let guard = locks.lock("a").await.unwrap();
        site.finish(&["run", "--no-wait", "a", "--", "touch", "ran"]).complains(75, "\"a\" is held by ");
        let begun = Instant::now();
        site.finish(&["run", "--wait", "300ms", "a", "--", "touch", "ran"])
            .complains(75, "not obtained within 300ms");
        let took = begun.elapsed();
        assert!(took >= Duration::from_millis(300) && took < Duration::from_secs(3), "{took:?}");
        assert!(!site.path("ran").exists());
        assert_eq!(locks.inspect("a").await.unwrap().waiters, 0);
        guard.release().await.unwrap();
        assert_eq!(site.finish(&["run", "--no-wait", "a", "--", "true"]).status, 0);
    });
}

#[test]
fn a_command_that_cannot_be_run_is_126_or_127_and_frees_the_lock() {
    let site = Site::new();
    // What is clearly not there is not even locked for.
    finish(&mut lockwell(&["run", "a", "--", "no-such-command"]))
        .complains(127, "no-such-command: there is no such command; is it installed");
    // This one shows only when it is to be run.
    std::fs::write(site.path("script"), "#!/no/such/interpreter\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(site.path("script"), mode).unwrap();
    for keep in [&[][..], &["--keep-child"]] {
        let script = site.path("script");
        let args = [&["run"], keep, &["a", "--", script.to_str().unwrap()]].concat();
        site.finish(&args).complains(127, "first line names");
    }
    site.finish(&["run", "a", "--", "no-such-command"]).complains(127, "no-such-command");
    site.finish(&["run", "--no-wait", "a", "--", "/"]).complains(126, "/: it is not a program");
    assert_eq!(site.finish(&["run", "--no-wait", "a", "--", "true"]).status, 0);
}

#[test]
#[cfg(feature = "postgres")]
fn a_server_that_is_not_there_is_69() {
    let run = finish(&mut lockwell(&["run", "--url", "postgres://127.0.0.1:1/app", "a", "--", "true"]));
    run.complains(69, "127.0.0.1:1: connection refused");
}

/// Nobody waits for a server that is not there, and a short wait does not hide the reason.
#[test]
fn refused_and_unknown_hosts_fail_fast() {
    let schemes = [
        ("postgres://HOST/db", cfg!(feature = "postgres")),
        ("mysql://HOST/db", cfg!(feature = "mysql")),
        ("redis://HOST", cfg!(feature = "redis")),
        ("redis+sentinel://HOST,HOST0/main", cfg!(feature = "redis")),
        ("redis+cluster://HOST,HOST0", cfg!(feature = "redis")),
        ("redlock://HOST,HOST0,HOST1", cfg!(feature = "redis")),
        ("zk://HOST/db", cfg!(feature = "zk")),
        ("etcd://HOST/locks", cfg!(feature = "etcd")),
    ];
    for (address, _) in schemes.into_iter().filter(|(_, on)| *on) {
        for (host, why) in [("127.0.0.1:1", "connection refused"), ("-no-such-host.invalid", "unknown")] {
            let url = &address.replace("HOST", host);
            for wait in [&["--wait", "1s"][..], &[]] {
                let args = [&["run", "--url", url], wait, &["a", "--", "true"]].concat();
                let begun = Instant::now();
                let run = finish(&mut lockwell(&args));
                // The C library refuses a name with a leading dash without a name server.
                assert!(begun.elapsed() < Duration::from_secs(20), "{url}: {:?}", begun.elapsed());
                run.complains(69, why);
            }
        }
    }
}

/// A socket in the file system that is not there, or that nobody listens to any more.
#[test]
#[cfg(feature = "redis")]
fn a_socket_without_a_server_is_69_at_once() {
    let site = Site::new();
    let path = site.path("redis.sock").display().to_string();
    let url = format!("redis+unix://{path}");
    let fails = |why: &str| {
        for args in [&["run", "a", "--", "true"][..], &["status"], &["run", "--no-wait", "a", "--", "true"]] {
            let begun = Instant::now();
            let run = finish(lockwell(args).env("LOCKWELL_URL", &url));
            assert!(begun.elapsed() < Duration::from_secs(4), "{args:?}: {:?}", begun.elapsed());
            run.complains(69, &format!("{path}: {why}"));
        }
    };
    fails("there is no such socket");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    fails("connection refused");
}

#[test]
#[cfg(feature = "postgres")]
fn a_server_that_does_not_answer_is_69_soon() {
    // Connections are taken by the kernel, and nobody ever answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("postgres://{}/app", silent.local_addr().unwrap());
    let begun = Instant::now();
    finish(&mut lockwell(&["run", "--url", &url, "--no-wait", "a", "--", "true"]))
        .complains(69, "takes connections but does not answer");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}
