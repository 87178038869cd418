//! The classes of a server as Java has read them once, in a file for later servers. A third of their start is
//! that reading.

use std::fs;

use super::java::{CLASSES, Classes, Java};
use crate::{
    Error, Options, Server,
    kept::{Found, Kept, Vacancy, Whole},
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
    let found = blocking(move || Ok(Kept::find("zookeeper", &files, &files).and_then(Kept::look))).await;
    let whole = match found {
        Ok(Some(Found::Whole(whole))) => Ok(whole),
        Ok(Some(Found::Nothing(vacancy))) => make(java, vacancy).await,
        Ok(None) => return Classes::Unused,
        Err(error) => Err(error),
    };
    match whole.and_then(|whole| text(&whole.folder().join(CLASSES))) {
        Ok(file) => Classes::Read(file),
        Err(error) => {
            tracing::warn!(%error, "the classes of ZooKeeper are not kept");
            Classes::Unused
        }
    }
}

/// Has a server write the file at its end.
async fn make(java: &Java, vacancy: Vacancy) -> Result<Whole, Error> {
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
        vacancy.fill(|folder| {
            fs::copy(&file, folder.join(CLASSES)).map(drop).map_err(Error::io(file.display().to_string()))
        })
    })
    .await
}
