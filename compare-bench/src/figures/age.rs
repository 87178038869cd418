//! Whether the product is still the one that was measured.

use std::process::Command;

use super::runs::Evidence;
use crate::view::distinct;

/// After so many changed lines, a run says little about the product.
const MANY: u64 = 2_000;

/// What decides about the figures.
const PRODUCT: [&str; 3] = ["lockcore/src", "backend-*/src/*", "src"];

/// A line for each commit of runs since which the product has changed much. `.ci/run` shows them at its end.
pub(super) fn warnings(evidence: &Evidence) -> Vec<String> {
    let all = evidence.all_commits();
    let warning = |commit: &String| {
        let said = match changed(commit) {
            None => "which this checkout does not have".to_owned(),
            Some(lines) if lines > MANY => format!("and the product has changed by {lines} lines since"),
            Some(_) => return None,
        };
        let runs = all.iter().filter(|(_, of)| of == commit).map(|(name, _)| &**name).collect::<Vec<_>>();
        Some(format!("OUTDATED: the runs {} are of commit {commit}, {said}", runs.join(", ")))
    };
    distinct(all.iter().map(|(_, commit)| commit)).into_iter().filter_map(warning).collect()
}

/// The lines of the product that were added or deleted since this commit.
fn changed(commit: &str) -> Option<u64> {
    let mut git = Command::new("git");
    let output = git.args(["diff", "--shortstat", commit, "HEAD", "--"]).args(PRODUCT).output().ok()?;
    output.status.success().then(|| lines(&String::from_utf8_lossy(&output.stdout)))
}

/// The sum of what `git diff --shortstat` says, which is nothing where nothing was changed.
fn lines(stat: &str) -> u64 {
    let counted = stat.split(',').filter(|part| part.contains("insertion") || part.contains("deletion"));
    counted.filter_map(|part| part.split_whitespace().next()?.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn added_and_deleted_lines_count() {
        assert_eq!(lines(" 3 files changed, 10 insertions(+), 2 deletions(-)\n"), 12);
        assert_eq!(lines(" 1 file changed, 1 deletion(-)\n"), 1);
        assert_eq!(lines(""), 0);
    }

    #[test]
    fn each_package_of_the_product_counts() {
        let mut git = Command::new("git");
        let git = git.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).args(["ls-files", "--"]);
        let Some(output) = git.args(PRODUCT).output().ok().filter(|it| it.status.success()) else {
            return testbed::lacks("this is no checkout");
        };
        let files = String::from_utf8(output.stdout).unwrap();
        for package in ["lockcore/", "backend-etcd/", "backend-redis/", "backend-sql/", "backend-zk/", ""] {
            let count = files.lines().filter(|file| file.starts_with(&format!("{package}src/"))).count();
            assert!(count >= 5, "{count} files of {package}");
        }
    }
}
