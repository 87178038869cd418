//! How long the disk takes to keep something for good: on a disk, that decides what a lock costs.

use std::fs::File;
use std::io::{Seek, Write};
use std::path::Path;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::error::Result;
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

/// The kind of file system that a folder is on.
pub(crate) fn file_system(folder: &Path) -> String {
    // The numbers are those of linux/magic.h.
    match rustix::fs::statfs(folder).map(|about| about.f_type) {
        Ok(0x0102_1994) => "tmpfs".to_owned(),
        Ok(0xef53) => "ext4".to_owned(),
        Ok(0x5846_5342) => "xfs".to_owned(),
        Ok(0x9123_683e) => "btrfs".to_owned(),
        Ok(0x794c_7630) => "overlayfs".to_owned(),
        Ok(0x2fc1_2fc1) => "zfs".to_owned(),
        Ok(other) => format!("file system {other:#x}"),
        Err(_) => "unknown".to_owned(),
    }
}
