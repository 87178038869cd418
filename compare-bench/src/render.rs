//! `compare-bench render`: shows what result files hold.

use std::fs;
use std::path::{Path, PathBuf};

use crate::args::RenderArgs;
use crate::document::html;
use crate::error::{Error, Result};
use crate::record::Report;
use crate::record::file::Input;
use faults::Results;

/// The storage of servers without a disk, as a run names it.
const TMPFS: &str = "tmpfs";

pub(crate) fn run(args: &RenderArgs) -> Result<()> {
    let (runs, faults) = files(&args.files)?;
    write(&args.output, &html::page(&runs, &faults))
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
