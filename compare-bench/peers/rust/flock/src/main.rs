//! `flock` on files beside that of SQLite, under the workloads of `compare-bench --peers`.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use fs4::{FileExt, TryLockError};
use peer_common::{Library, Result, one, through};

/// The folder of the files, which the comparison removes.
#[derive(Clone)]
struct Flock(Arc<Path>);

impl Library for Flock {
    type Held = File;

    async fn connect(urls: &[&str]) -> Result<Self> {
        let file = one(urls)?.strip_prefix("sqlite://").ok_or("it is measured beside a file of SQLite")?;
        let folder = PathBuf::from(format!("{file}.flock"));
        fs::create_dir_all(&folder)?;
        Ok(Self(folder.into()))
    }

    fn version(&self) -> String {
        through(include_str!("../Cargo.toml"), "fs4")
    }

    fn setup(&self) -> String {
        "a file for each name, opened for each lock; a thread waits for each lock that is not free at once"
            .to_owned()
    }

    fn lacks(&self) -> &'static str {
        "other machines; order; fencing tokens; leases; waiting without a thread"
    }

    async fn acquire(&self, name: &str) -> Result<File> {
        // Nothing else here lets the other tasks of the thread run.
        tokio::task::consume_budget().await;
        let path = self.0.join(name.replace('/', "-"));
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
        match FileExt::try_lock(&file) {
            Ok(()) => Ok(file),
            Err(TryLockError::WouldBlock) => {
                let wait = move || FileExt::lock(&file).map(|()| file);
                Ok(tokio::task::spawn_blocking(wait).await??)
            }
            Err(TryLockError::Error(error)) => Err(error.into()),
        }
    }

    async fn release(&self, held: File) -> Result<()> {
        Ok(FileExt::unlock(&held)?)
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    peer_common::run::<Flock>().await
}
