//! A script for psql that commits only under its lock.

use std::time::Duration;

use crate::servers::postgres;
use crate::support::{Running, Site, block_on, finish, lockwell};

const SCRIPT: &str = r"
\set ON_ERROR_STOP on
\getenv name LOCKWELL_NAME
\getenv token LOCKWELL_TOKEN
\getenv hold LOCKWELL_HOLD
\! echo > started; while [ ! -e go ]; do sleep 0.02; done
BEGIN;
SELECT lockwell_locks_verify(:'name', :token, :'hold');
INSERT INTO jobs VALUES (1);
COMMIT;
";

#[test]
fn a_script_commits_only_under_its_lock() {
    block_on(async {
        let Some(server) = postgres().await else { return };
        let site = Site::new();
        let url = format!("{}?table=public.lockwell_locks", server.url());
        let locks = lockwell::connect(&url).await.unwrap();
        let printed = finish(lockwell(&["schema", "--verify"]).env("LOCKWELL_URL", &url));
        assert_eq!(printed.status, 0, "{printed:?}");
        server.admin_sql(&(printed.out + "CREATE TABLE jobs (id int)")).await.unwrap();
        std::fs::write(site.path("job.sql"), SCRIPT).unwrap();

        for replaced in [false, true] {
            // A lost lock ends the command, so this one does not listen.
            let psql = "trap '' TERM; exec psql -Xq -f job.sql \"$DATABASE\" 2> said";
            let args = ["run", "--ttl", "60s", "--grace", "60s", "job", "--", "sh", "-c", psql];
            let mut command = site.lockwell(&args);
            let run = Running::start(command.env("LOCKWELL_URL", &url).env("DATABASE", server.url()));
            site.wait_for_file("started");
            let thief = if replaced {
                assert_eq!(locks.force_release("job").await.unwrap(), 1);
                Some(locks.lock("job").wait(Duration::from_secs(10)).await.unwrap())
            } else {
                None
            };
            std::fs::write(site.path("go"), "").unwrap();
            let ended = run.finish();
            let jobs = server.admin_sql("SELECT count(*) FROM jobs").await.unwrap();
            let said = site.read("said");
            assert_eq!(jobs.trim(), "1", "{replaced}: {said} {ended:?}");
            assert_eq!(said.contains("the lock 'job' is not held any more"), replaced, "{said}");
            assert_eq!(ended.status == 0, !replaced, "{ended:?}");
            std::fs::remove_file(site.path("go")).unwrap();
            std::fs::remove_file(site.path("started")).unwrap();
            drop(thief);
        }
    });
}

#[test]
fn other_servers_have_no_such_routine() {
    let site = Site::new();
    site.finish(&["schema", "--verify"]).complains(64, "sqlite:// has no such routine");
    let no_schema = ["schema", "--verify", "--url", "postgres://localhost/app"];
    site.finish(&no_schema).complains(64, "?table=public.lockwell_locks");
}
