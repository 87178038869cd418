//! What `lockwell doctor` finds about an SQLite file whose place is not good for locks.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::{Finished, Site, finish};

/// The finding about this subject, as one line.
fn finding(doctor: &Finished, subject: &str) -> String {
    let report: Value = serde_json::from_str(&doctor.out).expect(&doctor.err);
    let findings = report["findings"].as_array().expect("findings");
    let one = findings.iter().find(|one| one["subject"] == subject);
    let one = one.unwrap_or_else(|| panic!("nothing about {subject}: {findings:#?}"));
    let text = |field: &str| one[field].as_str().unwrap_or_default();
    format!("{}: {} -> {}", text("severity"), text("message"), text("remedy"))
}

fn url(file: &Path) -> String {
    format!("sqlite://{}", file.display())
}

#[test]
fn a_file_with_a_hard_link_is_bad() {
    let site = Site::new().prepared();
    std::fs::hard_link(site.path("locks.db"), site.path("other.db")).unwrap();
    let doctor = ["doctor", "--json"];
    for file in ["locks.db", "other.db"] {
        let found = finish(site.lockwell(&doctor).env("LOCKWELL_URL", url(&site.path(file))));
        assert_eq!(found.status, 2, "{found:?}");
        let connection = finding(&found, "connection");
        assert!(connection.starts_with("bad: "), "{connection}");
        assert!(connection.contains("another name (a hard link)"), "{connection}");
        assert!(connection.contains("remove the link"), "{connection}");
    }
    std::fs::remove_file(site.path("other.db")).unwrap();
    assert!(finding(&site.finish(&doctor), "connection").starts_with("good: "));
}

/// Runs `lockwell` after a script in a mount namespace of its own. `None`: nothing can be mounted here.
fn with_mounts(site: &Site, script: &str, file: &str, args: &[&str]) -> Option<Finished> {
    let mut command = Command::new("unshare");
    let script = format!("set -e; {script}; exec \"$0\" \"$@\"");
    command.args(["--mount", "sh", "-c", &script, env!("CARGO_BIN_EXE_lockwell")]).args(args);
    command.env("LOCKWELL_URL", url(&site.path(file))).current_dir(site.path(""));
    command.env_remove("LOCKWELL_HELD").env_remove("RUST_LOG");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let run = finish(&mut command);
    if ["unshare", "mount"].iter().any(|name| run.err.starts_with(name)) {
        testbed::cannot_run("", &run.err);
        return None;
    }
    Some(run)
}

#[test]
fn a_file_that_is_mounted_by_itself_is_bad() {
    let site = Site::new().prepared();
    std::fs::write(site.path("inside.db"), "").unwrap();
    let mount = "mount --bind locks.db inside.db";
    let Some(found) = with_mounts(&site, mount, "inside.db", &["doctor", "--json"]) else { return };
    assert_eq!(found.status, 2, "{found:?}");
    let connection = finding(&found, "connection");
    assert!(connection.starts_with("bad: ") && connection.contains("mounted by itself"), "{connection}");
    assert!(connection.contains("mount the folder"), "{connection}");
    // As it says.
    std::fs::create_dir(site.path("folder")).unwrap();
    let found =
        with_mounts(&site, "mount --bind . folder", "folder/locks.db", &["doctor", "--json"]).unwrap();
    assert!(finding(&found, "connection").starts_with("good: "), "{found:?}");
}

/// The file system of a container, on the layers of its image.
#[test]
fn a_file_of_a_container_alone_is_doubtful() {
    let site = Site::new();
    std::fs::create_dir(site.path("base")).unwrap();
    let layers = "mount -t tmpfs none base; mkdir base/image base/changes base/work base/root; \
                  mount -t overlay overlay -o lowerdir=base/image,upperdir=base/changes,workdir=base/work base/root";
    // Whoever only looks makes no file.
    let first = "\"$0\" run first -- true";
    let args = ["doctor", "--json"];
    let script = format!("{layers}; {first}");
    let Some(found) = with_mounts(&site, &script, "base/root/locks.db", &args) else { return };
    assert_eq!(found.status, 1, "{found:?}");
    let reach = finding(&found, "reach");
    assert!(reach.starts_with("doubtful: ") && reach.contains("(overlay)"), "{reach}");
    assert!(reach.contains("put it on a volume"), "{reach}");
    // On a volume in such a container.
    let volume = format!("{layers}; mkdir base/root/data; mount -t tmpfs none base/root/data; {first}");
    let found = with_mounts(&site, &volume, "base/root/data/locks.db", &args).unwrap();
    assert!(finding(&found, "reach").starts_with("good: "), "{found:?}");
}
