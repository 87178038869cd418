//! `compare-bench render`: shows what result files hold.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::args::{Export, RenderArgs};
use crate::error::{Error, Result};
use crate::html;
use crate::input::Input;
use crate::record::Report;
use crate::view::export;
use faults::Results;

/// The storage of servers without a disk, as a run names it.
const TMPFS: &str = "tmpfs";

/// Where the page goes if nothing else is said.
const PAGE: &str = "report.html";

pub(crate) fn run(args: &RenderArgs) -> Result<()> {
    let (runs, faults) = files(&args.files)?;
    let text = match args.export {
        None => html::page(&runs, &faults)?,
        Some(_) if runs.is_empty() => {
            return Err(Error::failed("a table shows comparisons, and no file has one"));
        }
        Some(Export::Csv) => export::csv(&runs),
        Some(Export::Md) => export::markdown(&runs),
    };
    match (&args.output, args.export) {
        (Some(path), _) => write(path, &text),
        (None, None) => write(Path::new(PAGE), &text),
        (None, Some(_)) => Ok(std::io::stdout().lock().write_all(text.as_bytes())?),
    }
}

/// Comparisons, and runs of faults. What was measured without a delay comes first, on the disk as it is, with
/// the safest durability.
fn files(paths: &[PathBuf]) -> Result<(Vec<Report>, Vec<Results>)> {
    let (mut runs, mut faults) = (Vec::new(), Vec::<Results>::new());
    for path in paths {
        match (Input::read(path)?, faults.first_mut()) {
            (Input::Run(run), _) => runs.push(*run),
            // Several files of faults are one.
            (Input::Faults(more), Some(first)) => first.outcomes.extend(more.outcomes),
            (Input::Faults(first), None) => faults.push(first),
        }
    }
    runs.sort_by_key(|run: &Report| {
        let it = &run.conditions;
        (it.delay_us, it.storage == TMPFS, it.durability != "disk", it.storage.contains(" whose syncs "))
    });
    Ok((runs, faults))
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(|error| Error::failed(format!("{}: {error}", path.display())))?;
    println!("{}", path.display());
    Ok(())
}
