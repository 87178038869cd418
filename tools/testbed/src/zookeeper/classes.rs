//! The classes of a server as Java has read them once, in a file for later servers. A third of their start is
//! that reading.

use std::{fs, path::PathBuf};

use super::java::{CLASSES, Classes, Java};
use crate::{
    Error, Options, Server,
    kept::Kept,
    programs::text,
    server::blocking,
    wire::{LONG, exchange},
};

/// The file, if there is one or one can be made. Java looks whether it fits its own version and the archives,
/// and does without it otherwise.
pub(super) async fn find(java: &Java, options: &Options) -> Classes {
    if options.measured {
        return Classes::Unused;
    }
    let files = java.files();
    let Some(kept) = Kept::find("zookeeper", &files, &files) else { return Classes::Unused };
    let whole = match kept.whole() {
        Some(whole) => Ok(whole),
        None => make(java, kept).await,
    };
    match whole.and_then(|whole| text(&whole.join(CLASSES))) {
        Ok(file) => Classes::Read(file),
        Err(error) => {
            tracing::warn!(%error, "the classes of ZooKeeper are not kept");
            Classes::Unused
        }
    }
}

/// Has a server write the file at its end.
async fn make(java: &Java, kept: Kept) -> Result<PathBuf, Error> {
    let server = Server::start(java.writes_classes(), &Options::new()).await?;
    let addr = server.addr();
    let ask = move |word: &str| exchange(addr, word.as_bytes(), LONG).map(drop);
    let asking = move || {
        let asked = ["srvr", "mntr", "conf"].into_iter().try_for_each(ask);
        asked.map_err(Error::io(format!("zookeeper on {addr}")))
    };
    // Only classes that it has used are in the file.
    blocking(asking).await?;
    server.stop().await?;
    blocking(move || {
        let file = server.folder().join(CLASSES);
        kept.fill(|folder| {
            fs::copy(&file, folder.join(CLASSES)).map(drop).map_err(Error::io(file.display().to_string()))
        })
    })
    .await
}
