//! `cargo xtask figures`: every figure of the documentation comes from the runs that are committed.
//!
//! In the Markdown, a block between `<!-- figures: NAME STORAGE -->` and `<!-- end of figures -->` is a table of that name, and what
//! stands between `<!-- figure: STORAGE BACKEND WORKLOAD METRIC -->` and `<!-- end -->` is one figure. STORAGE is `disk` or `tmpfs`, and
//! names the run. Where there is no such run, the text is left as it is.

mod blocks;
mod one;
mod runs;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use self::runs::{Run, runs};
use crate::shell::{Result, root};

const BLOCK: &str = "<!-- figures: ";
const END_OF_BLOCK: &str = "<!-- end of figures -->";
const FIGURE: &str = "<!-- figure: ";
const END: &str = "<!-- end -->";

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Write nothing, and fail if the documentation differs from the runs.
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let runs = runs(&root().join("compare-bench/runs"))?;
    let mut differing = Vec::new();
    for path in documents()? {
        let name = path.strip_prefix(root()).unwrap_or(&path).display().to_string();
        let text = fs::read_to_string(&path).map_err(|error| format!("{name}: {error}"))?;
        let filled = fill(&text, &runs).map_err(|problem| format!("{name}: {problem}"))?;
        for remark in &filled.remarks {
            eprintln!("xtask: {name}: {remark}");
        }
        if filled.text != text {
            if !options.check {
                fs::write(&path, &filled.text).map_err(|error| format!("{name}: {error}"))?;
                println!("{name}");
            }
            differing.push(name);
        }
    }
    if options.check && !differing.is_empty() {
        return Err(format!(
            "the figures in {} differ from the runs: cargo xtask figures",
            differing.join(", ")
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// The files that may have figures.
fn documents() -> Result<Vec<PathBuf>> {
    let problem = |error: std::io::Error| format!("docs: {error}");
    let mut files = vec![root().join("README.md")];
    for entry in fs::read_dir(root().join("docs")).map_err(problem)? {
        files.push(entry.map_err(problem)?.path());
    }
    files.retain(|file| file.extension().is_some_and(|it| it == "md"));
    files.sort();
    Ok(files)
}

#[derive(Debug, Default)]
struct Filled {
    text: String,
    /// What was not changed, and why.
    remarks: Vec<String>,
}

/// The text with the figures of these runs.
fn fill(text: &str, runs: &[Run]) -> Result<Filled> {
    let mut filled = Filled::default();
    let mut rest = text;
    loop {
        let next = [(BLOCK, END_OF_BLOCK), (FIGURE, END)]
            .into_iter()
            .filter_map(|(begin, end)| Some((rest.find(begin)?, begin, end)));
        let Some((at, begin, end)) = next.min() else { break };
        let what = rest[at + begin.len()..].split(" -->").next().unwrap_or_default();
        let body = at + begin.len() + what.len() + " -->".len();
        let length = rest.get(body..).and_then(|rest| rest.find(end));
        let length = length.ok_or_else(|| format!("{what:?} has no end"))?;
        filled.text.push_str(&rest[..body]);
        let before = &rest[body..body + length];
        let new = if begin == BLOCK { blocks::block(what, runs) } else { one::figure(what, runs) }?;
        if new.is_none() {
            filled.remarks.push(format!("no run has {what:?}: left as it is"));
        }
        match new {
            Some(new) if begin == BLOCK => filled.text.extend(["\n", &*new]),
            Some(new) => filled.text.push_str(&new),
            None => filled.text.push_str(before),
        }
        filled.text.push_str(end);
        rest = &rest[body + length + end.len()..];
    }
    filled.text.push_str(rest);
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_between_the_marks_is_replaced() {
        let runs = [runs::tests::run("ext4")];
        let text = "a <!-- figure: disk redis uncontended p50 -->?<!-- end --> b\n\
                    <!-- figures: headline disk -->\noutdated\n<!-- end of figures -->\nc\n";
        let filled = fill(text, &runs).unwrap();
        assert!(
            filled.text.starts_with("a <!-- figure: disk redis uncontended p50 -->45.0 us<!-- end --> b\n"),
            "{filled:?}"
        );
        assert!(filled.text.contains("| redis | 45.0 us | 1.25 [1.20 .. 1.30] |"), "{filled:?}");
        assert!(
            !filled.text.contains("outdated") && filled.text.ends_with("<!-- end of figures -->\nc\n"),
            "{filled:?}"
        );
        assert!(filled.remarks.is_empty(), "{filled:?}");
        assert_eq!(fill(&filled.text, &runs).unwrap().text, filled.text, "once more changes nothing");
    }

    #[test]
    fn without_a_run_the_text_stays() {
        let text = "<!-- figures: headline tmpfs -->\nold\n<!-- end of figures -->\n";
        let filled = fill(text, &[runs::tests::run("ext4")]).unwrap();
        assert_eq!((&*filled.text, filled.remarks.len()), (text, 1));
    }

    #[test]
    fn mistakes_are_told() {
        let runs = [runs::tests::run("ext4")];
        for bad in [
            "<!-- figures: headline disk -->\nno end",
            "<!-- figures: nonsense disk -->\n<!-- end of figures -->",
            "<!-- figure: disk redis uncontended nonsense -->x<!-- end -->",
            "<!-- figure: disk redis -->x<!-- end -->",
        ] {
            assert!(fill(bad, &runs).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_documentation_can_be_filled() {
        for path in documents().unwrap() {
            let text = fs::read_to_string(&path).unwrap();
            let filled = fill(&text, &[]).unwrap();
            assert_eq!(filled.text, text, "{}", path.display());
        }
    }
}
