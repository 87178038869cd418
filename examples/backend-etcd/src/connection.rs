//! Where the servers are, and what their errors mean.

use std::time::Duration;

use etcd_client::{Client, ConnectOptions};
use lockwell::backend::{Error, ErrorKind, Failure, Result, ServerUrl};
use tonic::Code;

/// A request without an answer for this time is repeated on a new connection.
pub(crate) const SILENCE: Duration = Duration::from_secs(2);

/// Where the servers are.
#[derive(Debug)]
pub(crate) struct Servers {
    endpoints: Vec<String>,
    login: Option<(String, String)>,
    /// How long a request may take, with all its repetitions.
    pub(crate) timeout: Duration,
}

impl Servers {
    pub(crate) fn read(url: &ServerUrl) -> Result<Self> {
        Ok(Self {
            endpoints: url.hosts()?.iter().map(|host| format!("http://{}", host.authority(2379))).collect(),
            login: url.user().zip(url.password()).map(|(user, word)| (user.into(), word.expose().into())),
            timeout: url.timeout()?,
        })
    }

    pub(crate) async fn connect(&self) -> Result<Client, Failure> {
        let mut options = ConnectOptions::new().with_connect_timeout(SILENCE);
        if let Some((user, password)) = &self.login {
            options = options.with_user(user, password);
        }
        Client::connect(&self.endpoints, Some(options)).await.map_err(explain)
    }
}

pub(crate) fn code(error: &etcd_client::Error) -> Option<Code> {
    match error {
        etcd_client::Error::GRpcStatus(status) => Some(status.code()),
        _ => None,
    }
}

/// What an error means. Of one that is not listed nobody knows whether the request was carried out.
pub(crate) fn explain(error: etcd_client::Error) -> Failure {
    let (kind, text) = match code(&error) {
        // A wrong password is an invalid argument.
        Some(Code::Unauthenticated | Code::PermissionDenied | Code::InvalidArgument) => {
            (ErrorKind::Refused, "etcd refuses us")
        }
        Some(Code::NotFound) => (ErrorKind::Lost, "the lease is gone"),
        Some(Code::ResourceExhausted) => (ErrorKind::Misconfigured, "etcd is full"),
        _ => {
            let text = "etcd cannot be reached, or has no leader";
            return Failure::Doubtful(Error::new(ErrorKind::Unreachable, text).with_source(error));
        }
    };
    Failure::Refused(Error::new(kind, text).with_source(error))
}
