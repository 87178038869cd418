//! Servers of this crate for the conformance suite.

use lockwell_conformance::{Missing, Server, async_trait};

use crate::Error;

/// If the program or the release is not there, its cases are ignored where they may be.
impl From<&Error> for Missing {
    fn from(error: &Error) -> Self {
        if error.is_not_installed() {
            Self::NotInstalled(error.to_string())
        } else {
            Self::Broken(error.to_string())
        }
    }
}

impl From<Error> for Missing {
    fn from(error: Error) -> Self {
        Self::from(&error)
    }
}

#[async_trait]
impl Server for crate::Server {
    async fn pause(&self) {
        Self::pause(self).expect("the server runs");
    }

    async fn resume(&self) {
        if self.pid().is_none() {
            Self::restart(self).await.expect("the server starts again");
        }
        Self::resume(self).expect("the server runs");
    }

    async fn restart(&self) {
        self.stop().await.expect("the server ends");
        Self::restart(self).await.expect("the server starts again");
    }
}
