//! What git says about the checkout that the programs of this repository were built from.

use std::process::Command;

/// The commit of a checkout. Both parts are unknown where the checkout is no longer there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkout {
    /// The commit, in full length.
    pub commit: Option<String>,
    /// Whether files that git knows had changes that were not committed.
    pub has_changes: Option<bool>,
}

impl Checkout {
    /// Asks git now, since a checkout may change after a build.
    pub fn look() -> Self {
        let changes = git(&["status", "--porcelain", "--untracked-files=no"]);
        Self { commit: git(&["rev-parse", "HEAD"]), has_changes: changes.map(|changes| !changes.is_empty()) }
    }
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(["-C", env!("CARGO_MANIFEST_DIR")]).args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
