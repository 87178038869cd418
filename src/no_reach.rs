//! Without backends on a network there are no hosts to check.

use std::time::Duration;

use lockwell_core::{Error, ErrorKind, ServerUrl};

pub(crate) async fn no_server(_: &ServerUrl) -> Error {
    std::future::pending().await
}

pub(crate) fn servers(_: &ServerUrl) -> Option<String> {
    None
}

pub(crate) async fn explained(error: Error, _: &ServerUrl) -> Error {
    std::future::ready(error).await
}

pub(crate) async fn silent(_: &ServerUrl, limit: Duration) -> Error {
    std::future::ready(Error::new(ErrorKind::Unreachable, format!("no answer within {limit:?}"))).await
}
