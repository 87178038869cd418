//! The files of `compare-bench/runs`: comparisons, and runs of faults.

use std::fs;
use std::io::BufReader;
use std::path::Path;

use flate2::read::GzDecoder;
use serde_json::Value;

use super::faults::{self, Faults};
use super::runs::Run;
use crate::shell::Result;

#[derive(Debug, Default)]
pub(crate) struct Evidence {
    /// By their delay, then by their name.
    pub(crate) runs: Vec<Run>,
    pub(crate) faults: Vec<Faults>,
}

impl Evidence {
    /// All that is in a folder, which may be nothing.
    pub(crate) fn read(folder: &Path) -> Result<Self> {
        let mut all = Self::default();
        let mut paths: Vec<_> =
            fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths.iter().filter(|path| path.to_string_lossy().ends_with(".json.gz")) {
            all.add(path).map_err(|problem| format!("{}: {problem}", path.display()))?;
        }
        all.runs.sort_by(|one, other| (one.delay_us(), one.name()).cmp(&(other.delay_us(), other.name())));
        Ok(all)
    }

    fn add(&mut self, path: &Path) -> Result<()> {
        let file = fs::File::open(path).map_err(|error| error.to_string())?;
        let value: Value = serde_json::from_reader(BufReader::new(GzDecoder::new(file)))
            .map_err(|error| error.to_string())?;
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let name = stem.split('.').next().unwrap_or_default().to_owned();
        if value["schema"] == faults::SCHEMA {
            let more = Faults::new(name, value)?;
            if let Some(file) = self.faults.iter_mut().find(|file| file.name() == more.name()) {
                return file.add(more);
            }
            self.faults.push(more);
            return Ok(());
        }
        if let Some(run) = self.runs.iter_mut().find(|run| run.name() == name) {
            return run.add(value);
        }
        self.runs.push(Run::new(name, value)?);
        Ok(())
    }
}
