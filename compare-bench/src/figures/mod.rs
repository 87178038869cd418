//! `compare-bench figures`: every table of figures in the documentation comes from the committed runs.
//!
//! In the Markdown, a block between `<!-- figures: NAME RUN -->` and `<!-- end of figures -->` is a table of
//! that name. RUN is the name of the file up to its first dot; several files are one run.

mod faults;
mod runs;
mod tables;

use std::fs;
use std::path::{Path, PathBuf};

use self::runs::Evidence;
use crate::args::FiguresArgs;
use crate::error::{Error, Result};

const BEGIN: &str = "<!-- figures: ";
const END: &str = "<!-- end of figures -->";

/// In the checkout that is the working folder.
pub(crate) fn run(args: &FiguresArgs) -> Result<()> {
    let stale = stale(Path::new("."))?;
    for (path, text) in &stale {
        println!("{}", path.display());
        if !args.check {
            fs::write(path, text)?;
        }
    }
    if args.check && !stale.is_empty() {
        return Err(Error::failed(
            "these figures differ from the runs: `compare-bench figures` fills them in",
        ));
    }
    Ok(())
}

/// The pages of a checkout whose figures differ from the runs, each with the text that it should have.
fn stale(root: &Path) -> Result<Vec<(PathBuf, String)>> {
    let evidence = Evidence::read(&root.join("compare-bench/runs"))?;
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
        let filled = fill(&text, &evidence).map_err(of_page)?;
        if filled != text {
            stale.push((page, filled));
        }
    }
    Ok(stale)
}

/// The text with the figures of these runs.
fn fill(text: &str, evidence: &Evidence) -> Result<String> {
    let mut parts = text.split(BEGIN);
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let block = part.split_once(" -->").and_then(|(what, rest)| Some((what, rest.split_once(END)?.1)));
        let (what, rest) =
            block.ok_or_else(|| Error::failed(format!("a block of figures has no end: {:.40}", part)))?;
        filled.extend([BEGIN, what, " -->\n", &tables::block(what, evidence)?, END, rest]);
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::{measured, report};

    /// A checkout with a run of Redis, whose hand-over takes 3 us, and this page.
    fn checkout(page: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in ["docs", "compare-bench/runs"] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        let mut run = report();
        (run.mode, run.finished) = ("usual".to_owned(), true);
        run.build = crate::record::machine::Build {
            profile: "release".to_owned(),
            git_commit: Some("0123456789abcdef".to_owned()),
            git_dirty: Some(false),
            ..run.build
        };
        run.load_before = 0.0;
        run.backends = vec![crate::view::family::tests::backend("redis", &[])];
        run.results = vec![measured("redis", 6)];
        let json = serde_json::to_string(&run).unwrap();
        fs::write(folder.path().join("compare-bench/runs/disk.json"), json).unwrap();
        fs::write(folder.path().join("README.md"), "no figures\n").unwrap();
        fs::write(folder.path().join("docs/measured.md"), page).unwrap();
        folder
    }

    #[test]
    fn a_stale_figure_is_found_and_filled_in() {
        let page =
            "before\n<!-- figures: headline disk -->\n| redis | 7 us |\n<!-- end of figures -->\nafter\n";
        let folder = checkout(page);
        let stale = stale(folder.path()).unwrap();
        let [(path, text)] = &stale[..] else { panic!("{stale:?}") };
        assert!(
            path.ends_with("docs/measured.md") && text.contains("| redis |  |  |  | 3.00 us |  |"),
            "{text}"
        );
        assert!(text.starts_with("before\n<!-- figures: headline disk -->\n|  |"), "{text}");
        assert!(text.ends_with("|\n<!-- end of figures -->\nafter\n") && !text.contains("7 us"), "{text}");
        fs::write(path, text).unwrap();
        assert!(super::stale(folder.path()).unwrap().is_empty());
    }

    #[test]
    fn mistakes_are_told() {
        for bad in [
            "<!-- figures: headline disk -->\nno end",
            "<!-- figures: headline disk -->\n<!-- figures: run disk -->\n<!-- end of figures -->",
            "<!-- figures: nonsense disk -->\n<!-- end of figures -->",
            "<!-- figures: headline -->\n<!-- end of figures -->",
            "<!-- figures: headline tmpfs -->\n<!-- end of figures -->",
            "<!-- figures: faults disk -->\n<!-- end of figures -->",
            "<!-- figures: delays uncontended -->\n<!-- end of figures -->",
        ] {
            let error = stale(checkout(bad).path()).unwrap_err().to_string();
            assert!(error.contains("docs/measured.md: "), "{bad}: {error}");
        }
    }

    #[test]
    fn the_documentation_shows_the_committed_runs() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let stale: Vec<_> = stale(&root).unwrap().into_iter().map(|(page, _)| page).collect();
        assert!(stale.is_empty(), "cargo run -p compare-bench -- figures fills in {stale:?}");
    }
}
