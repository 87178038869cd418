//! `cargo xtask sizes`: source files that may be too long to be read in one go, and comments that are too
//! wide to be read beside something else. It is advice: whether a file has one purpose is a question of
//! `cargo xtask circles`.

use std::fs;
use std::process::{Command, ExitCode};

use crate::shell::{Result, root, text};

/// What is longer is listed. Files aim at 300 lines.
const MOST: usize = 400;

/// Comments that are wider are listed. The formatter keeps code within this width, and leaves comments alone.
const WIDEST: usize = 110;

pub(crate) fn run() -> Result<ExitCode> {
    let mut git = Command::new("git");
    let listed = text(git.arg("-C").arg(root()).args(["ls-files", "-z", "--", "*.rs"]))?;
    let names: Vec<_> = listed.split('\0').filter(|name| !name.is_empty()).collect();
    let (mut sizes, mut wide) = (Vec::new(), Vec::new());
    for name in &names {
        // A tracked file may have been deleted, and the deletion not been committed yet.
        if let Ok(source) = fs::read_to_string(root().join(name)) {
            sizes.push((*name, source.lines().count()));
            wide.extend(too_wide(name, &source));
        }
    }
    let longest = sizes.iter().map(|(_, lines)| *lines).max().unwrap_or(0);
    println!("{} source files, the longest has {longest} lines", sizes.len());
    for file in too_long(&sizes) {
        println!("warning: {file}: has it one purpose?");
    }
    for comment in wide {
        println!("warning: {comment}");
    }
    Ok(ExitCode::SUCCESS)
}

fn too_long(sizes: &[(&str, usize)]) -> Vec<String> {
    let long = sizes.iter().filter(|(_, lines)| *lines > MOST);
    long.map(|(name, lines)| format!("{name} has {lines} lines")).collect()
}

/// The comments of a file that are too wide. The rows of tables and addresses of pages cannot be divided.
fn too_wide(name: &str, source: &str) -> Vec<String> {
    let lines =
        source.lines().zip(1..).map(|(line, number)| (number, line.chars().count(), line.trim_start()));
    let wide = lines.filter(|(_, width, line)| *width > WIDEST && line.starts_with("//"));
    let divisible = wide.filter(|(.., line)| {
        let text = line.trim_start_matches(['/', '!', ' ']);
        !text.starts_with('|') && !text.contains("https://")
    });
    divisible.map(|(number, width, _)| format!("{name}:{number}: the comment is {width} wide")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_itself_is_allowed() {
        assert_eq!(too_long(&[("a.rs", MOST), ("b.rs", MOST + 1)]), ["b.rs has 401 lines"]);
    }

    #[test]
    fn a_comment_is_as_wide_as_the_code_at_most() {
        let widest = format!("    /// {}", "é".repeat(WIDEST - 8));
        assert_eq!(too_wide("a.rs", &widest), Vec::<String>::new());
        let wider = format!("fn a() {{}}\n{widest}é");
        assert_eq!(too_wide("a.rs", &wider), ["a.rs:2: the comment is 111 wide"]);
    }

    #[test]
    fn what_cannot_be_divided_may_be_wider() {
        let much = "a ".repeat(WIDEST);
        let lines = [format!("//! | {much} |"), format!("// https://{much}"), format!("let a = \"{much}\";")];
        for line in lines {
            assert_eq!(too_wide("a.rs", &line), Vec::<String>::new());
        }
    }
}
