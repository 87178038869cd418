//! `cargo xtask sizes`: source files that may be too long to be read in one go. It is advice: whether a file
//! has one purpose is a question of `cargo xtask circles`.

use std::fs;
use std::process::{Command, ExitCode};

use crate::shell::{Result, root, text};

/// What is longer is listed. Files aim at 300 lines.
const MOST: usize = 400;

pub(crate) fn run() -> Result<ExitCode> {
    let mut git = Command::new("git");
    let listed = text(git.arg("-C").arg(root()).args(["ls-files", "-z", "--", "*.rs"]))?;
    let names: Vec<_> = listed.split('\0').filter(|name| !name.is_empty()).collect();
    let mut sizes = Vec::new();
    for name in &names {
        // A tracked file may have been deleted, and the deletion not been committed yet.
        if let Ok(source) = fs::read_to_string(root().join(name)) {
            sizes.push((*name, source.lines().count()));
        }
    }
    let longest = sizes.iter().map(|(_, lines)| *lines).max().unwrap_or(0);
    println!("{} source files, the longest has {longest} lines", sizes.len());
    for file in too_long(&sizes) {
        println!("warning: {file}: has it one purpose?");
    }
    Ok(ExitCode::SUCCESS)
}

fn too_long(sizes: &[(&str, usize)]) -> Vec<String> {
    let long = sizes.iter().filter(|(_, lines)| *lines > MOST);
    long.map(|(name, lines)| format!("{name} has {lines} lines")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_itself_is_allowed() {
        assert_eq!(too_long(&[("a.rs", MOST), ("b.rs", MOST + 1)]), ["b.rs has 401 lines"]);
    }
}
