//! A password is in nothing that the command prints, hands on or shows of itself, whatever it does and however much it logs.

use std::path::Path;

use crate::support::{Finished, Running, Site, finish, lockwell};

/// What must not appear.
const CANARY: &str = "c4n4ry-hunter2";

/// All verbs, on a server where they do their work or none.
fn verbs(url: &str, folder: &Path) -> Vec<Vec<String>> {
    let file = folder.join("url");
    std::fs::write(&file, url).unwrap();
    let config = folder.join("lockwell.toml");
    std::fs::write(&config, format!("url = \"{url}\"\n")).unwrap();
    let [file, config] = [file, config].map(|path| path.display().to_string());
    let line = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let mut verbs = vec![
        line("run --wait 1 a -- env"),
        line("run -v --no-wait --also b a -- env"),
        line("run --read a -- false"),
        line("run --no-wait a -- no-such-command"),
        line("lead l -- true"),
        line("status"),
        line("status a --json"),
        line("wait a --for 1"),
        line("acquire --no-wait --for 1s taken"),
        line("release lw1.0.00000000000000000000000000000001.a"),
        line("release --force --yes a"),
        line("run --json --no-wait a -- env"),
        line("wait a --for 1 --json"),
        line("release --json --force --yes a"),
        line("schema --json"),
        line("doctor"),
        line("doctor --json"),
        line("schema"),
        line("completions bash"),
        line("man"),
        line("--version"),
        line("--help"),
        line("run --help"),
        // Mistakes.
        line("run --wait x a -- true"),
        line("stauts a"),
        line("status a --jsno"),
    ];
    for way in [["--url", url], ["--url-file", &file], ["--config", &config]] {
        verbs.push([&line("status")[..], &way.map(str::to_owned)].concat());
    }
    verbs.push(vec![format!("--ulr={url}")]);
    verbs.push(vec!["status".into(), "a".into(), url.into()]);
    verbs.push(vec!["run".into(), "--url".into(), url.into(), "--bad".into()]);
    verbs
}

fn sing(url: &str, levels: &[&str]) {
    assert!(url.contains(CANARY));
    let site = Site::new();
    for level in levels {
        for verb in verbs(url, &site.path("")) {
            let words: Vec<_> = verb.iter().map(String::as_str).collect();
            let mut command = lockwell(&words);
            command.env("LOCKWELL_URL", url).env("RUST_LOG", level).current_dir(site.path(""));
            let Finished { out, err, .. } = finish(&mut command);
            for said in [out, err] {
                assert!(!said.contains(CANARY), "{level} {words:?}: {said}");
            }
        }
    }
}

#[test]
fn without_a_server() {
    let passwords = [
        ("postgres", cfg!(feature = "postgres")),
        ("redis", cfg!(feature = "redis")),
        ("mysql", cfg!(feature = "mysql")),
    ];
    for (scheme, _) in passwords.into_iter().filter(|(_, on)| *on) {
        let end = if scheme == "redis" { "" } else { "/app" };
        // Whatever is not said at the usual level is said at the last.
        sing(&format!("{scheme}://ann:{CANARY}@127.0.0.1:1{end}"), &["", "trace"]);
    }
}

#[test]
#[cfg(feature = "postgres")]
fn on_a_server() {
    crate::support::block_on(async {
        let Some(server) = crate::servers::postgres().await else { return };
        let sql = format!("CREATE ROLE ann LOGIN PASSWORD '{CANARY}'; GRANT ALL ON SCHEMA public TO ann");
        server.admin_sql(&sql).await.unwrap();
        let rules = server.folder().join("data/pg_hba.conf");
        let old = std::fs::read_to_string(&rules).unwrap();
        std::fs::write(&rules, format!("host all ann 127.0.0.1/32 scram-sha-256\n{old}")).unwrap();
        server.admin_sql("SELECT pg_reload_conf()").await.unwrap();
        let url = server.url().replace("postgres@", &format!("ann:{CANARY}@"));
        assert_eq!(finish(lockwell(&["run", "a", "--", "true"]).env("LOCKWELL_URL", &url)).status, 0);
        sing(&url, &["", "error", "warn", "info", "debug", "trace"]);
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
