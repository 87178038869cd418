//! Every example runs to its end and says what it is there to say.

use std::process::Command;

use crate::programs::program;

/// Runs an example and looks for these words in what it prints, in this order.
fn says(name: &str, args: &[&str], words: &[&str]) {
    let done = Command::new(program(name)).args(args).output().expect("the example starts");
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{name}: {}\n{out}\n{err}", done.status);
    let mut rest = &*out;
    for word in words {
        let Some(at) = rest.find(word) else {
            panic!("{name} does not say {word:?} (in this order):\n{out}\n{err}")
        };
        rest = &rest[at + word.len()..];
    }
}

/// The same on an SQLite file, where that is compiled in.
#[cfg_attr(not(feature = "sqlite"), allow(unused_variables))]
fn says_on_sqlite(name: &str, words: &[&str]) {
    #[cfg(feature = "sqlite")]
    {
        let folder = tempfile::tempdir().expect("a folder");
        says(name, &[&format!("sqlite://{}", folder.path().join("locks.db").display())], words);
    }
}

#[test]
fn basic() {
    says("basic", &[], &["held, with token", "a second try gets it: false", "the wait ended"]);
}

/// Every example that there is has a test and is in the list of the library, and every one that the documentation
/// tells to run is there.
#[test]
fn every_example_is_run() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &std::path::Path| std::fs::read_to_string(path).expect("a file of the repository");
    let files = ["tests/lockwell/examples.rs", "tests/lockwell/operations.rs", "tests/lockwell/service.rs"];
    let tests: String =
        files.into_iter().chain(["cli/tests/cli/first_day.rs"]).map(|file| read(&root.join(file))).collect();
    let mut names = Vec::new();
    for entry in std::fs::read_dir(root.join("examples")).expect("the examples") {
        let entry = entry.expect("an entry");
        let name = entry.file_name().into_string().expect("a name");
        // One file, or a folder with a main.rs.
        let is_folder = entry.path().join("main.rs").is_file();
        names.extend(name.strip_suffix(".rs").or(is_folder.then_some(&*name)).map(str::to_owned));
    }
    assert!(names.len() >= 15, "{names:?}");
    let manifest = read(&root.join("Cargo.toml"));
    let list = read(&root.join("src/lib.rs"));
    for name in &names {
        assert!(list.contains(&format!("`{name}`")), "the list of examples in src/lib.rs lacks {name}");
        // An example that is a test runs with the others.
        if manifest.contains(&format!("name = \"{name}\"\ntest = true")) {
            continue;
        }
        assert!(tests.contains(&format!("\"{name}\"")), "no test runs the example {name}");
    }
    let mut pages = vec![root.join("README.md")];
    pages.extend(
        std::fs::read_dir(root.join("docs")).expect("the guides").map(|it| it.expect("an entry").path()),
    );
    for page in pages.iter().filter(|page| page.extension().is_some_and(|it| it == "md")) {
        for told in read(page).split("cargo run --example ").skip(1) {
            let name: String = told.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            assert!(names.contains(&name), "{}: there is no example {name}", page.display());
        }
    }
}

/// The first program of the README runs as it is written there, on SQLite.
#[test]
#[cfg(feature = "sqlite")]
fn first() {
    let (_, program_text) = include_str!("../../examples/first.rs").split_once("\n\n").expect("a comment");
    let on_postgres = program_text.replace("sqlite://locks.db", "postgres://app:secret@db/app");
    assert_ne!(on_postgres, program_text);
    assert!(include_str!("../../README.md").contains(&on_postgres));
    let folder = tempfile::tempdir().expect("a folder");
    let done = Command::new(program("first")).current_dir(&folder).output().expect("the example starts");
    assert!(
        done.status.success() && String::from_utf8_lossy(&done.stdout).contains("fencing token"),
        "{done:?}"
    );
}

#[test]
fn blocking_program() {
    let words = ["after 3 leases still held: true", "done under the lock: 42"];
    says("blocking_program", &[], &words);
    says_on_sqlite("blocking_program", &words);
}

#[test]
fn config() {
    says("config", &[], &["held by billing", "refused at the start"]);
}

#[test]
fn fencing() {
    says("fencing", &[], &["slow holder", "next holder"]);
}

#[test]
fn fenced_store() {
    let words = ["\"first\"", "200", "\"second\"", "200", "once more", "409", "the store has \"second\""];
    says("fenced_store", &[], &words);
}

#[test]
fn run_closure() {
    says("run_closure", &[], &[]);
}

#[test]
fn hairdressers() {
    let words = ["semaphore", "at most 2", "limit 3", "mutex", "at most 2"];
    says("hairdressers", &[], &words);
    says_on_sqlite("hairdressers", &words);
}

#[test]
fn catalogue() {
    let words = ["has written \"spring\"", "has written \"summer\"", "would deadlock"];
    says("catalogue", &[], &words);
    says_on_sqlite("catalogue", &words);
}

#[test]
fn reentrant() {
    says("reentrant", &[], &["taken 2 times", "another owner gets it: false", "in a scope", "account/3"]);
}

#[test]
fn many_locks() {
    says("many_locks", &[], &["in opposite directions are done", "timed out", "account/3 is free: true"]);
}

#[test]
fn leader() {
    let words = ["leads, token", "process ends", "leads, token", "deposes", "leads, token"];
    says("leader", &[], &words);
    says_on_sqlite("leader", &words);
}

#[test]
fn stuck_worker() {
    says("stuck_worker", &[], &["HeldTooLong", "NoProgress", "had to wait for"]);
}

#[test]
fn local_queue() {
    says("local_queue", &[], &["each task for itself", "a queue in the process", "passed on"]);
    says_on_sqlite("local_queue", &["each task for itself", "a queue in the process", "passed on"]);
}

#[test]
#[cfg(feature = "sqlite")]
fn ticket_shop() {
    says("ticket_shop", &[], &["100"]);
}
