//! `compare-bench figures`: every table of figures in the documentation comes from the committed runs.
//!
//! In the Markdown, a block between `<!-- figures: NAME RUN -->` and `<!-- end of figures -->` is a table of
//! that name. RUN is the name of the file up to its first dot; several files are one run. All files of a run are of
//! one commit, and so are all runs of a page, but for [`runs::MIXED`].

mod age;
mod arrivals;
mod cell;
mod faults;
mod markdown;
mod runs;
mod sentence;
mod summary;
mod tables;

use std::fs;
use std::path::{Path, PathBuf};

use self::runs::{Evidence, check_commits};
use crate::args::FiguresArgs;
use crate::error::{Error, Result};
use crate::view::distinct;

const BEGIN: &str = "<!-- figures: ";
const END: &str = "<!-- end of figures -->";

/// In the checkout that is the working folder.
pub(crate) fn run(args: &FiguresArgs) -> Result<()> {
    let evidence = Evidence::read(Path::new("compare-bench/runs"))?;
    for warning in age::warnings(&evidence) {
        println!("{warning}");
    }
    let stale = stale(Path::new("."), &evidence)?;
    if args.check && !stale.is_empty() {
        let pages: Vec<_> = stale.iter().map(|(page, _)| page.display().to_string()).collect();
        let pages = pages.join(", ");
        return Err(Error::failed(format!(
            "{pages}: figures differ from the runs; `compare-bench figures` fills them in"
        )));
    }
    for (page, text) in stale {
        fs::write(&page, text)?;
        println!("{}", page.display());
    }
    Ok(())
}

/// The pages of a checkout whose figures differ from the runs, each with the text that it should have.
fn stale(root: &Path, evidence: &Evidence) -> Result<Vec<(PathBuf, String)>> {
    let mut pages = vec![root.join("README.md")];
    for entry in fs::read_dir(root.join("docs"))? {
        pages.push(entry?.path());
    }
    pages.retain(|page| page.extension().is_some_and(|it| it == "md"));
    pages.sort();
    let mut stale = Vec::new();
    for page in pages {
        let of_page = |error: Error| Error::failed(format!("{}: {error}", page.display()));
        let text = fs::read_to_string(&page).map_err(|error| of_page(error.into()))?;
        let (filled, commits) = fill(&text, evidence).map_err(of_page)?;
        let name = page.strip_prefix(root).unwrap_or(&page).to_string_lossy();
        check_commits(&name, &commits).map_err(|reason| of_page(Error::failed(reason)))?;
        if commits.len() > 1 {
            println!("{name}: its figures are of several commits: {}", commits.join(", "));
        }
        if filled != text {
            stale.push((page, filled));
        }
    }
    Ok(stale)
}

/// The text with the figures of these runs, and the commits of the runs.
fn fill(text: &str, evidence: &Evidence) -> Result<(String, Vec<String>)> {
    let mut parts = text.split(BEGIN);
    let mut filled = parts.next().unwrap_or_default().to_owned();
    let (mut commits, mut named) = (Vec::new(), None);
    for part in parts {
        let split = part.split_once(" -->").and_then(|(what, rest)| Some((what, rest.split_once(END)?.1)));
        let (what, rest) =
            split.ok_or_else(|| Error::failed(format!("a block of figures has no end: {part:.40}")))?;
        filled.extend([BEGIN, what, " -->\n", &block(what, evidence, &mut named)?, END, rest]);
        commits.extend(evidence.commits(what));
    }
    Ok((filled, distinct(commits)))
}

/// A block `NAME RUN`, `delays WORKLOAD`, or `summary`. `named` is the commit that the page has named last.
fn block(what: &str, evidence: &Evidence, named: &mut Option<String>) -> Result<String> {
    match what.split_once(' ').unwrap_or((what, "")) {
        ("run", run) => Ok(tables::about(evidence.named(run)?, named)),
        ("summary", "") => summary::summary(evidence),
        ("delays", workload) => tables::delays(workload, evidence),
        ("faults", name) => faults::faults(name, evidence),
        (name, run) => tables::of_run(name, run, evidence),
    }
}
