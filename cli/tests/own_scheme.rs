//! The command with a backend from elsewhere, through the library: `lockwell_cli::run(registry)`.
//!
//! This program is the tests and, when it is called `lockwell`, the command itself.

use std::process::ExitCode;

#[cfg(all(unix, feature = "sqlite"))]
fn main() -> ExitCode {
    if std::env::args_os().next().is_some_and(|name| name == own::NAME) {
        return lockwell_cli::run(own::registry());
    }
    own::tests()
}

#[cfg(not(all(unix, feature = "sqlite")))]
fn main() -> ExitCode {
    ExitCode::SUCCESS
}

#[cfg(all(unix, feature = "sqlite"))]
mod own {
    use std::os::unix::process::CommandExt as _;
    use std::process::{Command, ExitCode, Stdio};
    use std::time::{Duration, Instant};

    use libtest_mimic::{Arguments, Trial};
    use lockwell::backend::ServerUrl;
    use lockwell::sql::SqliteLock;
    use lockwell::{LockConfig, Registry, Result};

    pub(super) const NAME: &str = "lockwell";

    /// The schema of the backend, which the command prints.
    const SCHEMA: &str = "make a cabinet\n";

    /// `cabinet://FOLDER`: a lock file in a folder. So processes exclude each other.
    async fn connect(url: ServerUrl) -> Result<SqliteLock> {
        url.allow_options(&[])?;
        SqliteLock::connect(&format!("sqlite://{}/locks.db", url.location()).parse()?).await
    }

    pub(super) fn registry() -> Registry {
        let registry = Registry::new().with("cabinet", connect).expect("a new scheme");
        registry.with_schema("cabinet", |_| Ok(SCHEMA.to_owned())).expect("a known scheme")
    }

    /// The command of this program.
    fn lockwell(url: &str, words: &[&str]) -> Command {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.arg0(NAME).args(words).env("LOCKWELL_URL", url).env_remove("RUST_LOG");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs it to its end: its status, its output, its complaints.
    fn finish(url: &str, words: &[&str]) -> (Option<i32>, String, String) {
        let output = lockwell(url, words).output().expect("a process");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        (output.status.code(), text(output.stdout), text(output.stderr))
    }

    fn cabinet() -> (tempfile::TempDir, String) {
        let folder = tempfile::tempdir().expect("a folder");
        let url = format!("cabinet://{}", folder.path().display());
        (folder, url)
    }

    fn status(url: &str) -> serde_json::Value {
        let (status, out, err) = finish(url, &["status", "--json", "demo"]);
        assert_eq!(status, Some(0), "{err}");
        serde_json::from_str(&out).expect("a report")
    }

    /// A second process is refused while the first one runs, and status shows the first.
    fn run_holds_a_lock_that_status_shows() {
        let (folder, url) = cabinet();
        let [started, go] = ["started", "go"].map(|name| folder.path().join(name));
        let script = format!(
            "touch '{}'; while [ ! -e '{}' ]; do sleep 0.02; done; exit 7",
            started.display(),
            go.display()
        );
        let words = ["run", "--label", "the first", "demo", "--", "sh", "-c", &script];
        let mut first = lockwell(&url, &words).spawn().expect("a process");
        let begun = Instant::now();
        while !started.exists() {
            assert!(begun.elapsed() < Duration::from_secs(20), "the command does not start");
            std::thread::sleep(Duration::from_millis(10));
        }
        let report = status(&url);
        assert_eq!(report["held"], true, "{report}");
        assert_eq!(report["holders"][0]["label"], "the first", "{report}");
        let (refused, _, err) = finish(&url, &["run", "--wait", "0", "demo", "--", "true"]);
        assert!(refused == Some(75) && err.contains("the first"), "{refused:?}: {err}");
        std::fs::write(&go, "").expect("a file");
        assert_eq!(first.wait().expect("an end").code(), Some(7));
        assert_eq!(status(&url)["held"], false);
    }

    fn schema_prints_what_the_registry_has() {
        let (_folder, url) = cabinet();
        let (status, out, err) = finish(&url, &["schema"]);
        assert_eq!((status, out.as_str()), (Some(0), SCHEMA), "{err}");
        let (_, out, err) = finish(&url, &["schema", "--json"]);
        let report: serde_json::Value = serde_json::from_str(&out).expect(&err);
        assert_eq!((&report["statements"], &report["server"]), (&SCHEMA.into(), &url.into()), "{report}");
        // A backend of this repository keeps its own.
        let (_, out, err) = finish("sqlite:///nowhere.db?table=mine", &["schema"]);
        assert!(out.contains("\"mine\""), "{out}{err}");
    }

    fn what_the_backend_refuses_is_an_error_of_usage() {
        let (_folder, url) = cabinet();
        let (status, _, err) = finish(&(url + "?colour=red"), &["status", "demo"]);
        assert!(
            status == Some(64) && err.contains("cabinet:// has no option \"colour\""),
            "{status:?}: {err}"
        );
        for verb in ["status", "schema"] {
            let (status, _, err) = finish("cupboard:///tmp", &[verb]);
            assert!(status == Some(64) && err.contains("cabinet://"), "{verb}: {status:?}: {err}");
        }
    }

    /// The library of an application uses the same registry.
    fn an_application_sees_the_locks_of_the_command() {
        let (_folder, url) = cabinet();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let config = LockConfig::new(&url).label("the application");
            let locks = registry().connect_with(config).await.expect("a folder");
            let guard = locks.lock("demo").await.expect("a free lock");
            assert_eq!(status(&url)["holders"][0]["label"], "the application");
            guard.release().await.expect("an answer");
        });
        assert_eq!(status(&url)["held"], false);
    }

    pub(super) fn tests() -> ExitCode {
        let tests: [(&str, fn()); 4] = [
            ("run_holds_a_lock_that_status_shows", run_holds_a_lock_that_status_shows),
            ("schema_prints_what_the_registry_has", schema_prints_what_the_registry_has),
            ("what_the_backend_refuses_is_an_error_of_usage", what_the_backend_refuses_is_an_error_of_usage),
            ("an_application_sees_the_locks_of_the_command", an_application_sees_the_locks_of_the_command),
        ];
        let trials = tests.map(|(name, test)| {
            Trial::test(name, move || {
                test();
                Ok(())
            })
        });
        libtest_mimic::run(&Arguments::from_args(), trials.into()).exit_code()
    }
}
