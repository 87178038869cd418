//! The result file. It is written anew after each case, beside the old one, and takes its place only when it
//! is on the disk: a crash at any byte leaves the file of the case before, complete. A single document rather
//! than a line for each case, so that any tool for JSON works on it as it is.
//!
//! The first version takes a name that is free, by an operation that fails if it is not: nothing is ever
//! overwritten but the earlier state of the same run.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use faults::Results;
use flate2::read::GzDecoder;
use serde::Deserialize;
use tempfile::NamedTempFile;

use crate::error::{Error, Result};
use crate::record::{Report, SCHEMA, SCHEMA_VERSION};

/// Where results go if nothing else is said.
pub(crate) const FOLDER: &str = "results";

/// A file that this run owns.
#[derive(Debug)]
pub(crate) struct ResultFile {
    path: PathBuf,
}

impl ResultFile {
    /// A new file of this name, with what there is so far. Fails if there is one already, or if it cannot be
    /// written.
    pub(crate) fn create(path: &Path, report: &Report) -> Result<Self> {
        let this = Self { path: path.to_owned() };
        fs::create_dir_all(this.folder())?;
        this.written(report)?.persist_noclobber(path).map_err(|error| match error.error.kind() {
            io::ErrorKind::AlreadyExists => {
                Error::failed(format!("{} exists, and nothing is overwritten (see --resume)", path.display()))
            }
            _ => error.error.into(),
        })?;
        this.sync_folder()?;
        Ok(this)
    }

    /// A new file `DATE-HOST.json` in this folder, with a number behind it if there are others of the day.
    pub(crate) fn create_in(folder: &Path, report: &Report) -> Result<Self> {
        let day = report.date.split('T').next().unwrap_or_default();
        for number in 1.. {
            let number = if number == 1 { String::new() } else { format!("-{number}") };
            let path = folder.join(format!("{day}-{}{number}.json", plain(&report.machine.host)));
            // Another run may take the name between the two lines, and then this one fails before it has
            // measured anything.
            if !path.exists() {
                return Self::create(&path, report);
            }
        }
        unreachable!("there is always a next number")
    }

    /// Goes on with this file. The first [`save`](Self::save) shows whether it can be written.
    pub(crate) fn resume(path: &Path) -> Result<(Self, Report)> {
        let report = read(path)?;
        Ok((Self { path: path.to_owned() }, report))
    }

    /// Replaces the earlier state of the run by this one.
    pub(crate) fn save(&self, report: &Report) -> Result<()> {
        self.written(report)?.persist(&self.path).map_err(|error| error.error)?;
        self.sync_folder()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn folder(&self) -> &Path {
        match self.path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        }
    }

    /// A file beside it that is on the disk.
    fn written(&self, report: &Report) -> Result<NamedTempFile> {
        let mut builder = tempfile::Builder::new();
        builder.prefix(".lockwell-compare-").permissions(fs::Permissions::from_mode(0o644));
        let mut file = builder.tempfile_in(self.folder())?;
        write(report, &mut file)?;
        file.as_file().sync_all()?;
        Ok(file)
    }

    /// After it, the new name is on the disk, too.
    fn sync_folder(&self) -> Result<()> {
        Ok(File::open(self.folder())?.sync_all()?)
    }
}

/// How a file begins that was compressed with gzip.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// The text of a file, also of one that was compressed with gzip.
fn text(path: &Path) -> io::Result<String> {
    let bytes = fs::read(path)?;
    let mut text = String::new();
    if bytes.starts_with(&GZIP) {
        GzDecoder::new(&*bytes).read_to_string(&mut text)?;
    } else {
        (&*bytes).read_to_string(&mut text)?;
    }
    Ok(text)
}

/// What all result files begin with.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Head {
    schema: String,
    schema_version: u32,
}

/// Reads a result file of any run, also of one that did not come to its end.
pub(crate) fn read(path: &Path) -> Result<Report> {
    let report = text(path).map_err(|error| error.to_string()).and_then(|text| parse(&text));
    report.map_err(|reason| Error::failed(format!("{}: {reason}", path.display())))
}

/// The run in the text of a result file.
fn parse(text: &str) -> Result<Report, String> {
    let head: Head = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if head.schema != SCHEMA {
        return Err("this is no result of compare-bench".to_owned());
    }
    if head.schema_version != SCHEMA_VERSION {
        let version = head.schema_version;
        return Err(format!("its form has version {version}; this program reads {SCHEMA_VERSION}"));
    }
    serde_json::from_str(text).map_err(|error| error.to_string())
}

/// What a file has.
pub(crate) enum Input {
    Run(Box<Report>),
    Faults(Results),
}

impl Input {
    /// Reads a file, which says itself of what kind it is.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let fail = |reason: String| Error::failed(format!("{}: {reason}", path.display()));
        let text = text(path).map_err(|error| fail(error.to_string()))?;
        if serde_json::from_str::<Head>(&text).is_ok_and(|head| head.schema == faults::SCHEMA) {
            return serde_json::from_str(&text).map(Self::Faults).map_err(|error| fail(error.to_string()));
        }
        parse(&text).map(|report| Self::Run(Box::new(report))).map_err(fail)
    }
}

/// The newest file in a folder whose run did not come to its end.
pub(crate) fn unfinished(folder: &Path) -> Result<PathBuf> {
    let mut found = Vec::new();
    for entry in
        fs::read_dir(folder).map_err(|error| Error::failed(format!("{}: {error}", folder.display())))?
    {
        let entry = entry?;
        if entry.path().extension().is_some_and(|it| it == "json")
            && read(&entry.path()).is_ok_and(|report| !report.finished)
        {
            found.push((entry.metadata()?.modified()?, entry.path()));
        }
    }
    let newest = found.into_iter().max();
    newest
        .map(|(_, path)| path)
        .ok_or_else(|| Error::failed(format!("there is no unfinished run in {}", folder.display())))
}

/// Letters, digits, dots and hyphens of a host's name.
fn plain(host: &str) -> String {
    host.chars().map(|it| if it.is_ascii_alphanumeric() || ".-".contains(it) { it } else { '_' }).collect()
}

fn write(report: &Report, to: impl Write) -> Result<()> {
    let mut out = BufWriter::new(to);
    serde_json::to_writer(&mut out, report).map_err(io::Error::from)?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::report;

    #[test]
    fn what_is_written_can_be_read_and_gone_on_with() {
        let folder = tempfile::tempdir().unwrap();
        let file = ResultFile::create_in(folder.path(), &report()).unwrap();
        let mut report = report();
        report.seconds = 7.0;
        file.save(&report).unwrap();
        assert_eq!(unfinished(folder.path()).unwrap(), file.path());
        let (_, again) = ResultFile::resume(file.path()).unwrap();
        assert_eq!(format!("{report:?}"), format!("{again:?}"));
        report.finished = true;
        file.save(&report).unwrap();
        assert!(unfinished(folder.path()).is_err());
        // Nothing is left over.
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_compressed_file_is_read_like_another() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("it.json.gz");
        let mut whole = Vec::new();
        write(&report(), &mut whole).unwrap();
        let mut packed = flate2::read::GzEncoder::new(&*whole, flate2::Compression::best());
        let mut bytes = Vec::new();
        packed.read_to_end(&mut bytes).unwrap();
        fs::write(&path, &bytes).unwrap();
        assert_eq!(text(&path).unwrap().as_bytes(), whole);
        assert!(read(&path).is_ok());
        fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("it.json.gz"));
    }

    #[test]
    fn other_files_are_refused_with_a_reason() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.json");
        let refused = |text: &str| {
            fs::write(&path, text).unwrap();
            read(&path).unwrap_err().to_string()
        };
        assert!(refused("{").contains("x.json"));
        assert!(refused("{}").contains("no result of compare-bench"));
        let old = refused(r#"{"schema": "lockwell-compare", "schema_version": 4}"#);
        assert!(old.ends_with("its form has version 4; this program reads 5"), "{old}");
        assert!(unfinished(folder.path()).is_err());
    }
}
