//! What data is on.

use std::path::Path;

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
