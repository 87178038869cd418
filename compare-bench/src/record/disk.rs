//! How long the disk takes to keep something for good: on a disk, that decides what a lock costs.

use std::fs::File;
use std::io::{Seek, Write};
use std::path::Path;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::file_system::file_system;
use crate::stats::{Sample, Spread};

/// As much as the smallest commit writes.
const PAGE: [u8; 4096] = [0x5a; 4096];

/// Longer is not looked at a disk, however slow it is.
const LONGEST: std::time::Duration = std::time::Duration::from_secs(10);

/// A disk.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Disk {
    pub(crate) file_system: String,
    /// A page of 4 KiB written, and `fdatasync`, one after the other in one file.
    pub(crate) sync_us: Spread,
}

impl Disk {
    /// Looks at the disk that this folder is on. It blocks.
    pub(crate) fn look(folder: &Path, syncs: u32) -> Result<Self> {
        let mut file: File = tempfile::tempfile_in(folder)?;
        let (mut sample, began) = (Sample::new(), Instant::now());
        for _ in 0..syncs {
            file.rewind()?;
            let start = Instant::now();
            file.write_all(&PAGE)?;
            file.sync_data()?;
            sample.note(start.elapsed(), 1);
            if began.elapsed() > LONGEST {
                break;
            }
        }
        sample.close(began);
        Ok(Self { file_system: file_system(folder), sync_us: sample.spread() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sync_is_counted() {
        let disk = Disk::look(&std::env::temp_dir(), 3).unwrap();
        assert!((1..=3).contains(&disk.sync_us.samples) && disk.sync_us.p50 > 0.0, "{disk:?}");
    }
}
