//! A password is in nothing that the command prints, hands on or shows of itself, whatever it does and
//! however much it logs.

use std::fs::File;
use std::process::Stdio;

use crate::support::{Running, Site, finish, lockwell};

/// What must not appear.
const CANARY: &str = "c4n4ry-hunter2";

/// The verbs that use a server.
const AT_A_SERVER: [&str; 30] = [
    "run --wait 1 a -- env",
    "run -v --no-wait --also b a -- env",
    "run --read a -- false",
    "run --no-wait a -- no-such-command",
    "run --json --no-wait a -- env",
    // What the command does with the address is its own affair.
    "run -v --no-wait --pass-url a -- true",
    "lead l -- true",
    "lead --json -v l -- env",
    "status",
    "status a --json",
    "status --exit-code a",
    "top --once --every 100ms",
    "top --once --every 100ms --json a",
    "wait a --for 1",
    "wait a --for 1 --json",
    "record a",
    "record a --json",
    "jobs",
    "jobs a --json --done-within 26h",
    "jobs a --forget b",
    "acquire --no-wait --for 1s taken",
    "acquire --no-wait --json --for 1s taken",
    "release lw1.0.00000000000000000000000000000001.1.a",
    "release -",
    "release --force --yes a",
    "release --json --force --yes a",
    "doctor",
    "doctor --json",
    "doctor --look-only",
    "grace --yes",
];

/// Those that use none, and mistakes.
const WITHOUT: [&str; 10] = [
    "schema",
    "schema --json",
    "completions bash",
    "man",
    "--version",
    "--help",
    "run --help",
    "run --wait x a -- true",
    "stauts a",
    "status a --jsno",
];

fn words(verb: &str) -> Vec<String> {
    verb.split(' ').map(str::to_owned).collect()
}

/// The ways to name a server, and mistakes with its address.
fn addressed(url: &str) -> Vec<Vec<String>> {
    let ways = [["--url", url], ["--url-file", "url"], ["--config", "lockwell.toml"]];
    let mut verbs: Vec<_> =
        ways.map(|[option, value]| vec!["status".to_owned(), option.to_owned(), value.to_owned()]).into();
    verbs.push(vec![format!("--ulr={url}")]);
    verbs.push(vec!["status".into(), "a".into(), url.into()]);
    verbs.push(vec!["run".into(), "--url".into(), url.into(), "--bad".into()]);
    verbs
}

/// Runs verbs, so many at a time, and looks for the password in all that they print. Returns how each ended.
fn sing(url: &str, level: &str, verbs: &[Vec<String>], at_a_time: usize) -> Vec<i32> {
    assert!(url.contains(CANARY));
    let site = Site::new();
    std::fs::write(site.path("url"), url).unwrap();
    std::fs::write(site.path("lockwell.toml"), format!("url = \"{url}\"\n")).unwrap();
    std::fs::write(site.path("handle"), "lw1.0.00000000000000000000000000000002.1.a\n").unwrap();
    let mut ends = Vec::new();
    for some in verbs.chunks(at_a_time) {
        let start = |(number, verb): (usize, &Vec<String>)| {
            let words: Vec<_> = verb.iter().map(String::as_str).collect();
            let mut command = lockwell(&words);
            command.env("LOCKWELL_URL", url).env("RUST_LOG", level).current_dir(site.path(""));
            command.stdin(File::open(site.path("handle")).unwrap());
            let said = format!("said-{number}");
            // Both to one file: a pipe may be too small for a log.
            let to = File::create(site.path(&said)).unwrap();
            command.stdout(to.try_clone().unwrap()).stderr(to);
            (said, Running::start(&mut command))
        };
        let running: Vec<_> = some.iter().enumerate().map(start).collect();
        for (verb, (said, run)) in some.iter().zip(running) {
            ends.push(run.finish().status);
            let said = site.read(&said);
            assert!(!said.contains(CANARY), "{level} {verb:?}: {said}");
        }
    }
    ends
}

/// `status --watch` goes on until it is ended.
fn watch(url: &str, level: &str) {
    let site = Site::new();
    let [out, err] = ["out", "err"].map(|name| File::create(site.path(name)).unwrap());
    let mut command = lockwell(&["status", "--watch", "a"]);
    command.env("LOCKWELL_URL", url).env("RUST_LOG", level).stdout(out).stderr(err);
    let running = Running::start(&mut command);
    site.wait_for_file("out");
    drop(running);
    for file in ["out", "err"] {
        assert!(!site.read(file).contains(CANARY), "{level}: {}", site.read(file));
    }
}

/// `hold` reads from its parent, until it is told to end. Returns how it ended.
fn hold(url: &str, level: &str) -> i32 {
    let site = Site::new();
    let [out, err] = ["out", "err"].map(|name| File::create(site.path(name)).unwrap());
    let mut command = lockwell(&["hold", "--json", "--no-wait", "held"]);
    command.env("LOCKWELL_URL", url).env("RUST_LOG", level).stdout(out).stderr(err);
    let mut run = Running::start(command.stdin(Stdio::piped()));
    let input = run.input();
    site.wait_for_file("out");
    drop(input);
    let ended = run.finish().status;
    for file in ["out", "err"] {
        assert!(!site.read(file).contains(CANARY), "{level}: {}", site.read(file));
    }
    ended
}

/// Whatever is not said at the usual level is said at the last.
const LEVELS: [&str; 2] = ["", "trace"];

/// All of it, on a server where locks can be taken.
#[cfg(any(feature = "postgres", feature = "mysql", feature = "redis", feature = "zk"))]
fn sing_all(url: &str) {
    // The command gets the password if that is asked for.
    let run = finish(lockwell(&["run", "--pass-url", "a", "--", "env"]).env("LOCKWELL_URL", url));
    assert!(run.status == 0 && run.out.contains(CANARY), "{run:?}");
    for level in LEVELS {
        let verbs = AT_A_SERVER.map(words);
        // A lock of ZooKeeper does not outlive its lockwell, and grace periods are not what these servers
        // have.
        let refused =
            |verb: &Vec<String>| verb[0] == "grace" || verb[0] == "acquire" && url.starts_with("zk");
        for (verb, end) in verbs.iter().zip(sing(url, level, &verbs, 1)) {
            assert_eq!(end == 64, refused(verb), "{verb:?}: {end}");
        }
        sing(url, level, &addressed(url), 1);
        watch(url, level);
        assert_eq!(hold(url, level), 0, "{url}");
    }
}

#[test]
fn deep_without_a_server() {
    let addresses = [
        (format!("postgres://ann:{CANARY}@127.0.0.1:1/app"), cfg!(feature = "postgres")),
        (format!("mysql://ann:{CANARY}@127.0.0.1:1/app"), cfg!(feature = "mysql")),
        (format!("redis://ann:{CANARY}@127.0.0.1:1"), cfg!(feature = "redis")),
        (
            format!(
                "redis+sentinel://ann:{CANARY}@127.0.0.1:1/main?sentinel_user=bob&sentinel_password={CANARY}"
            ),
            cfg!(feature = "redis"),
        ),
        (format!("redis+cluster://ann:{CANARY}@127.0.0.1:1,127.0.0.1:2"), cfg!(feature = "redis")),
        (format!("redlock://ann:{CANARY}@127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"), cfg!(feature = "redis")),
        (format!("zk://ann:{CANARY}@127.0.0.1:1"), cfg!(feature = "zk")),
        (format!("etcd://ann:{CANARY}@127.0.0.1:1"), cfg!(feature = "etcd")),
    ];
    for (url, _) in addresses.into_iter().filter(|(_, on)| *on) {
        for level in LEVELS {
            let verbs = AT_A_SERVER.map(words);
            for (verb, end) in verbs.iter().zip(sing(&url, level, &verbs, 8)) {
                assert!(![0, 64].contains(&end), "{url} {verb:?}: {end}");
            }
            let rest = WITHOUT.iter().chain(&["status --watch a"]).map(|verb| words(verb));
            sing(&url, level, &rest.chain(addressed(&url)).collect::<Vec<_>>(), 8);
            let end = hold(&url, level);
            assert!(![64, 76].contains(&end), "{url}: {end}");
        }
    }
}

#[test]
#[cfg(feature = "postgres")]
fn deep_on_postgresql() {
    crate::support::block_on(async {
        let Some(server) = crate::servers::postgres().await else { return };
        let sql = format!("CREATE ROLE ann LOGIN PASSWORD '{CANARY}'; GRANT ALL ON SCHEMA public TO ann");
        server.admin_sql(&sql).await.unwrap();
        let rules = server.folder().join("data/pg_hba.conf");
        let old = std::fs::read_to_string(&rules).unwrap();
        std::fs::write(&rules, format!("host all ann 127.0.0.1/32 scram-sha-256\n{old}")).unwrap();
        server.admin_sql("SELECT pg_reload_conf()").await.unwrap();
        let url = server.url().replace("postgres@", &format!("ann:{CANARY}@"));
        sing_all(&url);
        // From a file of its own.
        let site = Site::new();
        std::fs::write(site.path("password"), format!("{CANARY}\n")).unwrap();
        let file = site.path("password");
        let url = server.url().replace("postgres@", "ann@") + "?password_file=";
        let run = finish(
            lockwell(&["run", "--url", &format!("{url}{}", file.display()), "a", "--", "env"])
                .env("RUST_LOG", "trace"),
        );
        assert_eq!(run.status, 0, "{run:?}");
        assert!(!run.out.contains(CANARY) && !run.err.contains(CANARY), "{run:?}");
        finish(&mut lockwell(&["status", "--url", &format!("{url}/no/such/file")]))
            .complains(64, "/no/such/file");
    });
}

#[test]
#[cfg(feature = "mysql")]
fn on_mariadb() {
    crate::support::block_on(async {
        let options = crate::everyday::options();
        let Some(server) = testbed::if_installed(testbed::MariaDb::start_with(&options).await) else {
            return;
        };
        let user =
            format!("CREATE USER ann@'%' IDENTIFIED BY '{CANARY}'; GRANT ALL ON lockwell.* TO ann@'%'");
        server.admin_sql(&user).await.unwrap();
        sing_all(&server.url().replace("root@", &format!("ann:{CANARY}@")));
    });
}

#[test]
#[cfg(feature = "redis")]
fn on_redis() {
    crate::support::block_on(async {
        let options = crate::everyday::options();
        let Some(server) = testbed::if_installed(testbed::Redis::start_with(&options).await) else { return };
        let password = format!(">{CANARY}");
        server.command(&["ACL", "SETUSER", "ann", "on", &password, "~*", "&*", "+@all"]).unwrap();
        sing_all(&server.url().replace("://", &format!("://ann:{CANARY}@")));
    });
}

#[test]
#[cfg(feature = "zk")]
fn deep_on_zookeeper() {
    crate::support::block_on(async {
        let options = crate::everyday::options();
        let Some(server) = testbed::if_installed(testbed::ZooKeeper::start_with(&options).await) else {
            return;
        };
        let url = server.url().replace("://", &format!("://ann:{CANARY}@")) + "/hers?acl=creator";
        sing_all(&url);
    });
}

/// What other users of the machine can see of lockwell, of its command, and of those that watch over it.
#[test]
fn no_process_shows_it() {
    let site = Site::new();
    // A file needs no password; this one stands for the address of a server.
    std::fs::write(site.path("url"), format!("{}?label={CANARY}", site.url())).unwrap();
    let script = "tr '\\0' ' ' < /proc/$PPID/cmdline > parent; env > environment; echo $$ > started; while [ ! -e go ]; \
                  do sleep 0.02; done";
    let mut command = site.lockwell(&["run", "--url-file", "url", "a", "--", "sh", "-c", script]);
    let run = Running::start(command.env_remove("LOCKWELL_URL"));
    site.wait_for_file("started");
    assert!(site.read("parent").contains("--url-file"));
    for file in ["parent", "environment"] {
        assert!(!site.read(file).contains(CANARY), "{file}: {}", site.read(file));
    }
    site.end(run);
}
