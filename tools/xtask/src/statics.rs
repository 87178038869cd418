//! What a process keeps is kept per process. A mutex, or a value that is made once, which another thread has while a
//! thread forks, lets the child wait for ever. So each `static` is one that no thread waits for, or has the type
//! `PerProcess`.

use std::fs;
use std::path::Path;

use crate::shell::root;

const FOLDERS: [&str; 7] =
    ["lockcore", "backend-etcd", "backend-redis", "backend-sql", "backend-zk", ".", "python"];

/// The types that a child makes anew.
const OF_PROCESS: [&str; 1] = ["PerProcess"];
/// Types of ours which have a value of such a type in them, and nothing that a thread waits for; and their files.
const MADE_OF_THEM: [(&str, &str); 2] =
    [("SharedRuntime", "lockcore/src/system/own_runtime.rs"), ("Aside", "lockcore/src/system/aside.rs")];
/// Types that no thread waits for.
const PLAIN: [&str; 7] =
    ["AtomicBool", "AtomicU8", "AtomicU32", "AtomicU64", "AtomicUsize", "Constant", "Metadata"];

/// The others, with the reason why no child waits for them.
const MEANT: [(&str, &str, &str); 6] = [
    ("lockcore/src/system/forward.rs", "FORWARD", "it is made before there are other threads, by make_ready"),
    ("lockcore/src/system/hooks.rs", "HOOKS", "only the conformance suite sets it; reading does not wait"),
    ("lockcore/src/system/hooks.rs", "LOOKUP", "only tests set it; reading does not wait"),
    (
        "lockcore/src/system/moment.rs",
        "START",
        "for systems without a clock that all processes share, and so without fork",
    ),
    ("src/registry.rs", "INSTALLED", "main sets it before anything connects; reading does not wait"),
    ("backend-etcd/src/waiter.rs", "SYSTEM", "a constant: the clock of the system has no state"),
];

/// A static, and the outermost name of its type.
fn statics(text: &str) -> Vec<(String, String)> {
    let text = text.split("mod tests {").next().unwrap_or_default();
    let mut of_thread = false;
    let mut found = Vec::new();
    for line in text.lines() {
        if line.contains("thread_local! {") || line.contains("task_local! {") {
            of_thread = true;
        } else if line.trim() == "}" {
            of_thread = false;
        }
        let line = line.trim();
        let line = line.strip_prefix("pub").map_or(line, |rest| {
            rest.strip_prefix('(')
                .and_then(|rest| rest.split_once(')'))
                .map_or(rest, |(_, rest)| rest)
                .trim_start()
        });
        let Some((name, of)) = line.strip_prefix("static ").and_then(|rest| rest.split_once(": ")) else {
            continue;
        };
        if !of_thread {
            let path = of.split(['<', ' ', '=', ';']).next().unwrap_or_default();
            found.push((name.to_owned(), path.rsplit("::").next().unwrap_or_default().to_owned()));
        }
    }
    found
}

/// All files of the product in this folder.
fn files(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") && !name.ends_with("tests") {
            let below = path.strip_prefix(root()).expect("it is below").to_string_lossy().replace("./", "");
            found.push((below, fs::read_to_string(&path).expect("a file")));
        }
    }
}

/// All files of the product.
pub(crate) fn product() -> Vec<(String, String)> {
    let mut all = Vec::new();
    for folder in FOLDERS {
        files(&root().join(folder).join("src"), &mut all);
    }
    all
}

#[test]
fn a_forked_child_waits_for_no_static() {
    let all = product();
    let mut meant: Vec<_> = MEANT.iter().map(|(file, name, _)| (*file, *name)).collect();
    let mut count = 0;
    for (file, text) in &all {
        for (name, of) in statics(text) {
            count += 1;
            let is_known = OF_PROCESS.contains(&&*of)
                || PLAIN.contains(&&*of)
                || MADE_OF_THEM.iter().any(|(made, _)| *made == of);
            if !is_known {
                let at = meant.iter().position(|it| *it == (file.as_str(), &*name));
                assert!(at.is_some(), "{file}: static {name}: {of}: a child may wait for it; see PerProcess");
                if let Some(at) = at {
                    meant.remove(at);
                }
            }
        }
    }
    assert!(meant.is_empty(), "a static that is no more must not stay in the list: {meant:?}");
    assert!(count > 20, "they are found: {count}");
    for (name, file) in MADE_OF_THEM {
        let (_, text) = all.iter().find(|(path, _)| path == file).expect("its file");
        let (_, body) = text.split_once(&format!("struct {name} {{")).expect("its definition");
        let (body, _) = body.split_once("\n}").expect("its end");
        assert!(body.contains("PerProcess<"), "{name}");
        for word in ["Mutex", "RwLock", "Once", "LazyLock", "Condvar"] {
            assert!(!body.contains(word), "{name}: a child may wait for its {word}");
        }
    }
}

#[test]
fn a_static_is_found() {
    let text = "
        static A: Mutex<u8> = Mutex::new(0);
        pub(crate) static $name: std::sync::LazyLock<u8> =
        thread_local! {
            static OWN: Cell<u8> = 0;
        }
        fn f(it: &'static str) {
            pub static B: OnceLock<()> = OnceLock::new();
        }
        mod tests {
            static C: Mutex<u8> = Mutex::new(0);";
    let found = statics(text);
    let found: Vec<_> = found.iter().map(|(name, of)| (&**name, &**of)).collect();
    assert_eq!(found, [("A", "Mutex"), ("$name", "LazyLock"), ("B", "OnceLock")]);
}
