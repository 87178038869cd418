//! Wall clocks that can be stepped: of one process, by a library that is loaded before the others.

use std::fs::File;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::error::{Error, Result};

/// The library, and the folder of the files that say by how much each clock is wrong.
#[derive(Clone, Debug)]
pub(crate) struct Clocks {
    library: PathBuf,
    folder: PathBuf,
}

impl Clocks {
    /// Compiles the library into this folder. Servers that do not run as this user must be able to read it.
    pub(crate) fn make(folder: &Path) -> Result<Self> {
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755))?;
        let source = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src/skew.c"));
        let library = testbed::preloaded(source, folder).map_err(Error::failed)?;
        Ok(Self { library, folder: folder.to_owned() })
    }

    /// What the environment of a process needs whose clock has this name. The clock is right to begin with.
    pub(crate) fn environment(&self, clock: &str) -> Result<[(String, String); 2]> {
        let file = self.file(clock);
        std::fs::write(&file, 0_i64.to_ne_bytes())?;
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644))?;
        let text = |path: &Path| path.display().to_string();
        Ok([("LD_PRELOAD".to_owned(), text(&self.library)), ("LOCKWELL_CLOCK".to_owned(), text(&file))])
    }

    /// From now on this clock is so many milliseconds ahead, or behind.
    pub(crate) fn step(&self, clock: &str, by: i64) -> Result<()> {
        let nanos = by.saturating_mul(1_000_000);
        File::options().write(true).open(self.file(clock))?.write_all_at(&nanos.to_ne_bytes(), 0)?;
        Ok(())
    }

    fn file(&self, clock: &str) -> PathBuf {
        self.folder.join(format!("clock-{clock}"))
    }
}

/// A small file system in memory. It is gone when this is dropped.
#[derive(Debug)]
pub(crate) struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts one here, for which this process needs the right. It holds the log of SQLite (64 MB) and more.
    pub(crate) fn mount(folder: &Path) -> Result<Self> {
        std::fs::create_dir(folder)?;
        let output =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=160m", "tmpfs"]).arg(folder).output()?;
        if output.status.success() {
            Ok(Self(folder.to_owned()))
        } else {
            Err(Error::failed(format!("no small disk: {}", String::from_utf8_lossy(&output.stderr))))
        }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.0
    }

    /// Nothing more can be written for so long.
    pub(crate) async fn fill(&self, length: Duration) -> Result<()> {
        let path = self.0.join("filler");
        let filler = File::create(&path)?;
        let (block, mut at) = ([0_u8; 4096], 0);
        let is_full = loop {
            match filler.write_all_at(&block, at) {
                Ok(()) => at += 4096,
                Err(error) => break error.kind() == std::io::ErrorKind::StorageFull,
            }
        };
        tokio::time::sleep(length).await;
        std::fs::remove_file(&path)?;
        if is_full { Ok(()) } else { Err(Error::failed("the disk could not be filled")) }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Workers that are still ending have files open in it.
        Command::new("umount").arg("--lazy").arg(&self.0).status().ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The year that a process with this clock sees.
    fn year(clocks: &Clocks) -> i32 {
        let environment = [
            ("LD_PRELOAD".to_owned(), clocks.library.display().to_string()),
            ("LOCKWELL_CLOCK".to_owned(), clocks.file("one").display().to_string()),
        ];
        let output = Command::new("date").arg("+%Y").envs(environment).output().unwrap();
        String::from_utf8_lossy(&output.stdout).trim().parse().unwrap()
    }

    #[test]
    fn a_clock_is_stepped_there_and_back() {
        let folder = tempfile::tempdir().unwrap();
        let clocks = Clocks::make(folder.path()).unwrap();
        clocks.environment("one").unwrap();
        let now = year(&clocks);
        let ten_years = 10 * 366 * 86_400_000;
        clocks.step("one", ten_years).unwrap();
        assert!((now + 9..=now + 11).contains(&year(&clocks)));
        clocks.step("one", -ten_years).unwrap();
        assert!((now - 11..=now - 9).contains(&year(&clocks)));
        clocks.step("one", 0).unwrap();
        assert!((now..=now + 1).contains(&year(&clocks)));
    }
}
