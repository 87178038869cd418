//! Converts the errors of the client crate.

use lockwell_core::{Error, ErrorKind};
use zookeeper_client as zk;

/// What an error means for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorClass {
    /// The server refused it. Nothing was done.
    Refused,
    /// The server refused it because it has too many requests. Nothing was done, and the request can be
    /// repeated.
    Throttled,
    /// The session is over; its nodes are deleted, or will be soon.
    SessionOver,
    /// It may have been executed, or may still be.
    Unknown,
}

pub(crate) fn class_of(error: &zk::Error) -> ErrorClass {
    use zk::Error::{
        AuthFailed, BadArguments, BadVersion, ClientClosed, InvalidAcl, NoAuth, NoChildrenForEphemerals,
        NoNode, NodeExists, NotEmpty, NotReadOnly, QuotaExceeded, SessionExpired, Throttled, Unimplemented,
    };
    match error {
        SessionExpired | ClientClosed => ErrorClass::SessionOver,
        NoNode
        | NodeExists
        | NotEmpty
        | NoAuth
        | BadVersion
        | BadArguments(_)
        | InvalidAcl
        | AuthFailed
        | NoChildrenForEphemerals
        | NotReadOnly
        | QuotaExceeded
        | Unimplemented => ErrorClass::Refused,
        Throttled => ErrorClass::Throttled,
        // Among these errors are `ConnectionLoss`, `Custom` for a connection that was closed because it was
        // silent, and `SessionMoved`, which a server returns on an old connection after the session has moved
        // to another server.
        _ => ErrorClass::Unknown,
    }
}

/// The error for the caller.
pub(crate) fn explain(error: &zk::Error) -> Error {
    use zk::Error as E;
    let (kind, text) = match error {
        E::NoAuth => {
            (ErrorKind::Refused, "the ACL of the path does not allow it: CREATE, READ and DELETE are needed")
        }
        E::AuthFailed => (ErrorKind::Refused, "the server refuses these credentials"),
        E::InvalidAcl => (ErrorKind::InvalidInput, "acl=creator needs a user that the servers know"),
        E::NoNode => (ErrorKind::Misconfigured, "the base path is missing; create it, or use create=true"),
        E::NoChildrenForEphemerals => {
            (ErrorKind::KindClash, "the name is in use by a lock of another kind: its node is ephemeral")
        }
        E::NotReadOnly => (ErrorKind::Misconfigured, "the server is read only: it has lost its ensemble"),
        E::QuotaExceeded => (ErrorKind::Misconfigured, "the quota of the path is used up"),
        E::Throttled => (ErrorKind::Unreachable, "the server refuses requests because it has too many"),
        E::SessionExpired | E::SessionMoved => (ErrorKind::Unreachable, "the session has expired"),
        E::ClientClosed => (ErrorKind::Unreachable, "the session was closed"),
        E::NoHosts | E::Timeout | E::ConnectionLoss | E::Custom(_) => {
            (ErrorKind::Unreachable, "no server can be reached or answers")
        }
        E::BadArguments(_) => (ErrorKind::Internal, "the client refuses a request"),
        _ => (ErrorKind::Internal, "an unexpected answer"),
    };
    Error::new(kind, text).with_source(error.to_string())
}

/// There was no answer within the time limit.
pub(crate) fn no_answer() -> Error {
    Error::new(ErrorKind::Unreachable, "no server can be reached or answers")
}
