//! `cargo xtask figures`: every figure of the documentation comes from the runs that are committed.
//!
//! In the Markdown, a block between `<!-- figures: NAME RUN -->` and `<!-- end of figures -->` is a table of
//! that name, and what stands between `<!-- figure: RUN BACKEND WORKLOAD METRIC -->` and `<!-- end -->` is
//! one figure. RUN is the name of the file up to its first dot; several files are one run.

mod blocks;
mod delays;
mod evidence;
mod faults;
mod hot;
mod markdown;
mod one;
mod runs;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use self::evidence::Evidence;
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
    let evidence = Evidence::read(&root().join("compare-bench/runs"))?;
    let mut differing = Vec::new();
    for path in documents()? {
        let name = path.strip_prefix(root()).unwrap_or(&path).display().to_string();
        let text = fs::read_to_string(&path).map_err(|error| format!("{name}: {error}"))?;
        let filled = fill(&text, &evidence).map_err(|problem| format!("{name}: {problem}"))?;
        if filled != text {
            if !options.check {
                fs::write(&path, &filled).map_err(|error| format!("{name}: {error}"))?;
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

/// The text with the figures of these runs.
fn fill(text: &str, evidence: &Evidence) -> Result<String> {
    let mut filled = String::new();
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
        // The end of another one: what stands between would be lost.
        if [BLOCK, FIGURE].iter().any(|begin| rest[body..body + length].contains(begin)) {
            return Err(format!("{what:?} has no end before the next one"));
        }
        filled.push_str(&rest[..body]);
        if begin == BLOCK {
            filled.extend(["\n", &*blocks::block(what, evidence)?]);
        } else {
            filled.push_str(&one::figure(what, &evidence.runs)?);
        }
        filled.push_str(end);
        rest = &rest[body + length + end.len()..];
    }
    Ok(filled + rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_between_the_marks_is_replaced() {
        let evidence = Evidence { runs: vec![runs::tests::run("disk")], faults: Vec::new() };
        let text = "a <!-- figure: disk redis uncontended time -->?<!-- end --> b\n\
                    <!-- figures: headline disk -->\noutdated\n<!-- end of figures -->\nc\n";
        let filled = fill(text, &evidence).unwrap();
        assert!(
            filled.starts_with("a <!-- figure: disk redis uncontended time -->45.0 us<!-- end --> b\n"),
            "{filled}"
        );
        assert!(filled.contains("| redis | 45.0 us | 1.25 [1.20 .. 1.30] |"), "{filled}");
        assert!(!filled.contains("outdated") && filled.ends_with("<!-- end of figures -->\nc\n"), "{filled}");
        assert_eq!(fill(&filled, &evidence).unwrap(), filled, "once more changes nothing");
    }

    #[test]
    fn mistakes_are_told() {
        let evidence = Evidence { runs: vec![runs::tests::run("disk")], faults: Vec::new() };
        for bad in [
            "<!-- figures: headline disk -->\nno end",
            "<!-- figure: disk redis uncontended time -->x <!-- figure: disk redis crowd rate -->y<!-- end -->",
            "<!-- figures: nonsense disk -->\n<!-- end of figures -->",
            "<!-- figure: disk redis uncontended nonsense -->x<!-- end -->",
            "<!-- figure: disk redis -->x<!-- end -->",
            "<!-- figure: disk postgres uncontended time -->x<!-- end -->",
            "<!-- figures: headline tmpfs -->\n<!-- end of figures -->",
            "<!-- figures: faults disk -->\n<!-- end of figures -->",
        ] {
            assert!(fill(bad, &evidence).is_err(), "{bad}");
        }
    }
}
