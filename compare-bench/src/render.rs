//! `compare-bench render`: shows what result files hold.

use std::fs;
use std::io::Write;
use std::path::Path;

use crate::args::{Export, RenderArgs};
use crate::error::{Error, Result};
use crate::html;
use crate::record::file::read;
use crate::view::export;

/// Where the page goes if nothing else is said.
const PAGE: &str = "report.html";

pub(crate) fn run(args: &RenderArgs) -> Result<()> {
    let runs: Vec<_> = args.files.iter().map(|file| read(file)).collect::<Result<_>>()?;
    let text = match args.export {
        None => html::page(&runs)?,
        Some(Export::Csv) => export::csv(&runs),
        Some(Export::Md) => export::markdown(&runs),
    };
    match (&args.output, args.export) {
        (Some(path), _) => write(path, &text),
        (None, None) => write(Path::new(PAGE), &text),
        (None, Some(_)) => Ok(std::io::stdout().lock().write_all(text.as_bytes())?),
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(|error| Error::failed(format!("{}: {error}", path.display())))?;
    println!("{}", path.display());
    Ok(())
}
