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
        AuthFailed, BadArguments, BadVersion, ClientClosed, InvalidAcl, MarshallingError, NoAuth,
        NoChildrenForEphemerals, NoNode, NoWatcher, NodeExists, NotEmpty, NotReadOnly, QuotaExceeded,
        ReconfigDisabled, SessionExpired, Throttled, Unimplemented,
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
        | MarshallingError
        | NoWatcher
        | ReconfigDisabled
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
    let (kind, text) = meaning(error);
    let explained = Error::new(kind, text).with_source(error.to_string());
    // The node of another program. Whether it ever leaves, nobody knows, and there is no queue to wait in.
    if kind == ErrorKind::KindClash { explained.for_good() } else { explained }
}

fn meaning(error: &zk::Error) -> (ErrorKind, &'static str) {
    use zk::Error as E;
    match error {
        E::NoAuth => {
            (ErrorKind::Refused, "the ACL of the path does not allow it: CREATE, READ and DELETE are needed")
        }
        E::AuthFailed => (ErrorKind::Refused, "the server refuses these credentials"),
        E::InvalidAcl => (ErrorKind::InvalidInput, "acl=creator needs a user that the servers know"),
        E::NoNode => (ErrorKind::Misconfigured, "the base path is missing; create it, or use create=true"),
        E::NoChildrenForEphemerals => {
            (ErrorKind::KindClash, "the name is in use by a lock of another kind: its node is ephemeral")
        }
        E::NodeExists | E::NotEmpty | E::BadVersion => {
            (ErrorKind::Conflict, "others changed the same nodes at the same time")
        }
        E::NotReadOnly => (ErrorKind::Misconfigured, "the server is read only: it has lost its ensemble"),
        E::QuotaExceeded => (ErrorKind::Misconfigured, "the quota of the path is used up"),
        E::Throttled => (ErrorKind::Unreachable, "the server refuses requests because it has too many"),
        E::SessionExpired | E::SessionMoved => (ErrorKind::Unreachable, "the session has expired"),
        E::ClientClosed => (ErrorKind::Unreachable, "the session was closed"),
        E::NoHosts | E::Timeout | E::ConnectionLoss | E::Custom(_) => {
            (ErrorKind::Unreachable, "no server can be reached or answers")
        }
        // Codes of ZooKeeper that the client crate does not know: connection loss, operation timeout, unknown
        // session, request timeout.
        E::UnexpectedErrorCode(-4 | -7 | -12 | -122) => {
            (ErrorKind::Unreachable, "the server could not answer in time")
        }
        // System error, runtime and data inconsistency; without a quorum for, or in the middle of, a change of
        // the ensemble.
        E::UnexpectedErrorCode(-3..=-1 | -13 | -14) => {
            (ErrorKind::Misconfigured, "the server reports an error of its own: its log has more")
        }
        E::Unimplemented | E::MarshallingError | E::ReconfigDisabled => {
            (ErrorKind::Misconfigured, "the server does not know a request: it is older than 3.5")
        }
        E::UnmarshalError { .. } | E::UnexpectedError(_) | E::UnexpectedErrorCode(_) => {
            (ErrorKind::Misconfigured, "what answers is not a ZooKeeper server that this client understands")
        }
        E::BadArguments(_) => (ErrorKind::Internal, "the client or the server refuses a request"),
        // `NoWatcher`, `RuntimeInconsistent`.
        _ => (ErrorKind::Internal, "an unexpected answer"),
    }
}

/// There was no answer within the time limit.
pub(crate) fn no_answer() -> Error {
    Error::new(ErrorKind::Unreachable, "no server can be reached or answers")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each error of the client crate.
    #[test]
    fn every_answer_that_a_server_may_give_is_known() {
        use zk::Error as E;
        let code = E::UnexpectedErrorCode;
        for (class, kind, errors) in [
            (ErrorClass::Refused, ErrorKind::Refused, &[E::NoAuth, E::AuthFailed][..]),
            (ErrorClass::Refused, ErrorKind::InvalidInput, &[E::InvalidAcl]),
            (ErrorClass::Refused, ErrorKind::KindClash, &[E::NoChildrenForEphemerals]),
            (ErrorClass::Refused, ErrorKind::Conflict, &[E::NodeExists, E::NotEmpty, E::BadVersion]),
            (
                ErrorClass::Refused,
                ErrorKind::Misconfigured,
                &[
                    E::NoNode,
                    E::NotReadOnly,
                    E::QuotaExceeded,
                    E::Unimplemented,
                    E::MarshallingError,
                    E::ReconfigDisabled,
                ],
            ),
            (ErrorClass::Throttled, ErrorKind::Unreachable, &[E::Throttled]),
            (ErrorClass::SessionOver, ErrorKind::Unreachable, &[E::SessionExpired, E::ClientClosed]),
            (
                ErrorClass::Unknown,
                ErrorKind::Unreachable,
                &[
                    E::SessionMoved,
                    E::NoHosts,
                    E::Timeout,
                    E::ConnectionLoss,
                    code(-4),
                    code(-7),
                    code(-12),
                    code(-122),
                ],
            ),
            (
                ErrorClass::Unknown,
                ErrorKind::Misconfigured,
                &[
                    code(-1),
                    code(-2),
                    code(-3),
                    code(-13),
                    code(-14),
                    code(7),
                    E::UnmarshalError { entity: "reply", reason: &"too short" },
                    E::UnexpectedError("a version".to_owned()),
                ],
            ),
            (ErrorClass::Refused, ErrorKind::Internal, &[E::BadArguments(&"a path"), E::NoWatcher]),
            (ErrorClass::Unknown, ErrorKind::Internal, &[E::RuntimeInconsistent]),
        ] {
            for error in errors {
                assert_eq!((class_of(error), meaning(error).0), (class, kind), "{error:?}");
            }
        }
    }
}
