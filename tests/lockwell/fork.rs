//! A process that forks: its children are clients like all others.
#![cfg(all(unix, feature = "sqlite"))]

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use fork::{Fork, fork, waitpid};
use lockwell::{ErrorKind, LockGuard, Locks, Result};
use tokio::runtime::{Builder, Runtime};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

async fn client(folder: &Path) -> Result<Locks> {
    lockwell::connect(&format!("sqlite://{}", folder.join("locks.db").display())).await
}

/// Forks, and runs this in the child, which says how it went by a file. Returns the process id of the child.
fn child(folder: &Path, number: u32, work: impl FnOnce() -> String) -> i32 {
    match fork().expect("a fork") {
        Fork::Parent(child) => child,
        Fork::Child => {
            let said = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            let said = said.unwrap_or_else(|_| "panicked".to_owned());
            std::fs::write(folder.join(format!("{number}.new")), said).expect("written");
            std::fs::rename(folder.join(format!("{number}.new")), folder.join(number.to_string()))
                .expect("renamed");
            // Without the destructors of the parent's values.
            std::process::exit(0);
        }
    }
}

fn said(folder: &Path, number: u32) -> Option<String> {
    std::fs::read_to_string(folder.join(number.to_string())).ok()
}

/// Takes the lock, if it is free, and holds it until all children have said how it went.
fn takes(folder: &Path, number: u32, children: u32) -> String {
    runtime().block_on(async {
        let locks = client(folder).await.expect("a client");
        let guard: Option<LockGuard> = locks.lock("one").try_now().await.expect("an answer");
        let told = folder.join(format!("{number}.told"));
        std::fs::write(&told, "").expect("written");
        let all = || (0..children).all(|child| folder.join(format!("{child}.told")).exists());
        while !all() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        match guard {
            Some(guard) => {
                guard.release().await.expect("it is held");
                "held".to_owned()
            }
            None => "refused".to_owned(),
        }
    })
}

/// Set in a process that runs this test alone. Nextest starts such a process by itself.
const ALONE: &str = "LOCKWELL_TEST_ALONE";

/// In a process of its own, and one after the other: a child inherits all clients of its parent.
#[test]
fn a_forked_child_is_another_client() {
    if [ALONE, "NEXTEST"].into_iter().any(|variable| std::env::var_os(variable).is_some()) {
        children_are_different_clients();
        return a_child_of_an_open_client_is_refused();
    }
    let mut test = Command::new(std::env::current_exe().expect("this program"));
    test.args(["--exact", "fork::a_forked_child_is_another_client", "--nocapture"]).env(ALONE, "1");
    let output = test.output().expect("it runs");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

/// Equal owner ids would make the claims of the children repetitions of one.
fn children_are_different_clients() {
    const CHILDREN: u32 = 3;
    let folder = tempfile::tempdir().expect("a folder");
    // The parent has made an id, and closes its client, as it must.
    runtime().block_on(async {
        let locks = client(folder.path()).await.expect("a client");
        locks.lock("one").await.expect("a free lock").release().await.expect("held");
        locks.close().await.expect("closed");
    });
    let children: Vec<_> = (0..CHILDREN)
        .map(|number| child(folder.path(), number, || takes(folder.path(), number, CHILDREN)))
        .collect();
    for child in children {
        waitpid(child).expect("it has ended");
    }
    let mut all: Vec<_> =
        (0..CHILDREN).map(|number| said(folder.path(), number).expect("it said something")).collect();
    all.sort_unstable();
    assert_eq!(all, ["held", "refused", "refused"]);
}

/// SQLite's notes of its locks would be wrong in the child.
fn a_child_of_an_open_client_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    runtime().block_on(async {
        let locks = client(folder.path()).await.expect("a client");
        let guard = locks.lock("one").await.expect("a free lock");
        let pid = child(folder.path(), 0, || {
            let thread = std::thread::spawn({
                let folder = folder.path().to_owned();
                // Not on the thread of the parent's runtime.
                move || match runtime().block_on(client(&folder)) {
                    Ok(_) => "connected".to_owned(),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
                        format!("{error:#}")
                    }
                }
            });
            thread.join().expect("no panic")
        });
        waitpid(pid).expect("it has ended");
        let said = said(folder.path(), 0).expect("it said something");
        assert!(said.contains("close all clients before the fork"), "{said}");
        guard.release().await.expect("it is held all the time");
    });
}
