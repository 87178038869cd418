//! What the errors of the servers mean.

use std::fmt;

use lockwell_core::backend::Failure;
use lockwell_core::{Error, ErrorKind, tls};
use tonic::{Code, Status, transport};

/// Whether the server says that there is no such lease.
pub(crate) fn is_missing(status: &Status) -> bool {
    status.code() == Code::NotFound
}

/// Whether the server says that the lease exists.
pub(crate) fn exists(status: &Status) -> bool {
    status.code() == Code::FailedPrecondition && status.message().contains("already exists")
}

/// Whether the server says that it has no space for changes.
pub(crate) fn is_full(status: &Status) -> bool {
    status.code() == Code::ResourceExhausted && status.message().contains("space exceeded")
}

/// Whether the server says that the token of a login is not valid any more: it has expired, another member
/// has given it out, or it is older than the last change of the users.
pub(crate) fn is_expired(status: &Status) -> bool {
    let text = status.message();
    matches!(status.code(), Code::Unauthenticated | Code::InvalidArgument)
        && (text.contains("invalid auth token") || text.contains("revision of auth store is old"))
}

/// The connection had ended before the request was sent.
#[derive(Debug)]
pub(crate) struct Ended;

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the connection has ended")
    }
}

impl std::error::Error for Ended {}

fn causes(error: &dyn std::error::Error) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    std::iter::successors(error.source(), |cause| cause.source())
}

/// Why there is no channel. If a server's certificate is not trusted, another's may be.
pub(crate) fn no_channel(error: transport::Error) -> Failure {
    let refusal = causes(&error).map(ToString::to_string).find(|text| tls::is_untrusted(text));
    Failure::Doubtful(match refusal {
        Some(refusal) => tls::untrusted(&refusal, "ca=FILE"),
        None => Error::new(ErrorKind::Unreachable, "etcd cannot be reached").with_source(error),
    })
}

/// What an error means for a request. Of one that is not listed nobody knows whether the request was
/// executed: it is repeated on a new connection.
pub(crate) fn explain(status: &Status) -> Failure {
    let text = status.message();
    if causes(status).any(|cause| cause.downcast_ref::<Ended>().is_some()) {
        return Failure::NotSent(Error::new(ErrorKind::Unreachable, "the connection to etcd has ended"));
    }
    let (kind, message) = match status.code() {
        // A new connection gets a new one. Nothing was executed: the servers check it before.
        _ if is_expired(status) => {
            let message = "the token of the login is not valid any more";
            let error = Error::new(ErrorKind::Unreachable, message).with_source(text.to_owned());
            return Failure::NotSent(error);
        }
        // A member that has much left to apply refuses changes before it proposes them.
        Code::ResourceExhausted if text.contains("too many requests") => {
            let message = "etcd refuses requests because it has too many";
            return Failure::Busy(Error::new(ErrorKind::Unreachable, message).with_source(text.to_owned()));
        }
        Code::PermissionDenied => (
            ErrorKind::Refused,
            "the role of this user does not allow it: readwrite on the keys that begin with PREFIX/ is needed",
        ),
        Code::Unauthenticated | Code::InvalidArgument if text.contains("user name is empty") => {
            (ErrorKind::Refused, "etcd wants a user: write USER:PASSWORD@ in the address, or cert= and key=")
        }
        Code::Unauthenticated | Code::InvalidArgument if text.contains("auth") => {
            (ErrorKind::Refused, "etcd refuses these credentials")
        }
        Code::FailedPrecondition if text.contains("authentication is not enabled") => (
            ErrorKind::Refused,
            "etcd has no users: its authentication is not enabled, so the address must name none",
        ),
        _ if is_full(status) => (
            ErrorKind::Misconfigured,
            "etcd is full (alarm NOSPACE) and takes no new locks; those that are held are kept: compact, \
             defragment, then `etcdctl alarm disarm`",
        ),
        Code::DataLoss => (
            ErrorKind::Misconfigured,
            "etcd reports that the data of its members differ (alarm CORRUPT): restore the member",
        ),
        Code::Unimplemented => (ErrorKind::Misconfigured, "this is no etcd, or one before 3.4"),
        Code::NotFound => (ErrorKind::Lost, "the lease is gone"),
        Code::InvalidArgument => (ErrorKind::InvalidInput, "etcd refuses the request"),
        Code::ResourceExhausted if text.contains("larger than max") => {
            (ErrorKind::InvalidInput, "the request is too large for etcd")
        }
        // What is read in pages, as it was at one moment: that was compacted, or a snapshot was restored.
        Code::OutOfRange if text.contains("required revision") => {
            (ErrorKind::Conflict, "etcd has compacted the revision that was being read")
        }
        // The limit of this client, too, for an answer.
        Code::OutOfRange => (ErrorKind::Refused, "a number or an answer is beyond the limits of etcd"),
        // A member that starts, learns or is no leader any more. Another one, or the same a little later, has
        // another answer.
        Code::FailedPrecondition
            if !["not capable", "not leader", "learner"].iter().any(|what| text.contains(what)) =>
        {
            (ErrorKind::Misconfigured, "etcd is not set up for the request")
        }
        _ => (ErrorKind::Unreachable, "etcd cannot be reached, or has no leader"),
    };
    let error = Error::new(kind, message).with_source(text.to_owned());
    if kind == ErrorKind::Unreachable { Failure::Doubtful(error) } else { Failure::Refused(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words of etcd 3.4 and 3.5.
    #[test]
    fn errors_are_told_apart() {
        for (code, text, kind) in [
            (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded", ErrorKind::Misconfigured),
            (Code::ResourceExhausted, "etcdserver: too many requests", ErrorKind::Unreachable),
            (Code::Unauthenticated, "etcdserver: invalid auth token", ErrorKind::Unreachable),
            (Code::InvalidArgument, "etcdserver: revision of auth store is old", ErrorKind::Unreachable),
            (
                Code::InvalidArgument,
                "etcdserver: authentication failed, invalid user ID or password",
                ErrorKind::Refused,
            ),
            (Code::InvalidArgument, "etcdserver: user name is empty", ErrorKind::Refused),
            (Code::PermissionDenied, "etcdserver: permission denied", ErrorKind::Refused),
            (Code::FailedPrecondition, "etcdserver: authentication is not enabled", ErrorKind::Refused),
            (
                Code::InvalidArgument,
                "etcdserver: duplicate key given in txn request",
                ErrorKind::InvalidInput,
            ),
            (
                Code::ResourceExhausted,
                "grpc: received message larger than max (3 vs. 2)",
                ErrorKind::InvalidInput,
            ),
            (Code::OutOfRange, "Error, decoded message length too large", ErrorKind::Refused),
            (Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted", ErrorKind::Conflict),
            (
                Code::OutOfRange,
                "etcdserver: mvcc: required revision is a future revision",
                ErrorKind::Conflict,
            ),
            (Code::OutOfRange, "etcdserver: too large lease TTL", ErrorKind::Refused),
            (Code::InvalidArgument, "etcdserver: key is not provided", ErrorKind::InvalidInput),
            (
                Code::InvalidArgument,
                "etcdserver: too many operations in txn request",
                ErrorKind::InvalidInput,
            ),
            (Code::InvalidArgument, "etcdserver: request is too large", ErrorKind::InvalidInput),
            (Code::NotFound, "etcdserver: requested lease not found", ErrorKind::Lost),
            (Code::DataLoss, "etcdserver: corrupt cluster", ErrorKind::Misconfigured),
            (Code::Unimplemented, "unknown service etcdserverpb.KV", ErrorKind::Misconfigured),
            (Code::FailedPrecondition, "etcdserver: root user does not exist", ErrorKind::Misconfigured),
            (Code::FailedPrecondition, "etcdserver: cluster ID mismatch", ErrorKind::Misconfigured),
            // What passes.
            (Code::FailedPrecondition, "etcdserver: not capable", ErrorKind::Unreachable),
            (Code::FailedPrecondition, "etcdserver: not leader", ErrorKind::Unreachable),
            (Code::FailedPrecondition, "etcdserver: rpc not supported for learner", ErrorKind::Unreachable),
            (Code::Unavailable, "etcdserver: leader changed", ErrorKind::Unreachable),
            (Code::Unavailable, "etcdserver: server stopped", ErrorKind::Unreachable),
            (Code::Unavailable, "etcdserver: unhealthy cluster", ErrorKind::Unreachable),
            (Code::Cancelled, "etcdserver: watch canceled", ErrorKind::Unreachable),
            (Code::DeadlineExceeded, "context deadline exceeded", ErrorKind::Unreachable),
            (Code::Aborted, "anything", ErrorKind::Unreachable),
            (Code::Internal, "anything", ErrorKind::Unreachable),
            (Code::Unavailable, "etcdserver: no leader", ErrorKind::Unreachable),
            (Code::Unavailable, "etcdserver: request timed out", ErrorKind::Unreachable),
            (Code::Unknown, "anything", ErrorKind::Unreachable),
        ] {
            let failure = explain(&Status::new(code, text));
            let (error, is_repeated) = match failure {
                Failure::Refused(error) => (error, false),
                Failure::Doubtful(error) => (error, true),
                Failure::NotSent(error) => {
                    assert!(text.contains("auth"), "{text}");
                    (error, true)
                }
                Failure::Busy(error) => {
                    assert!(text.contains("too many"), "{text}");
                    (error, true)
                }
                _ => panic!("another failure"),
            };
            assert_eq!((error.kind(), is_repeated), (kind, kind == ErrorKind::Unreachable), "{text}");
        }
        for text in ["etcdserver: invalid auth token", "etcdserver: revision of auth store is old"] {
            let failure = explain(&Status::new(Code::InvalidArgument, text));
            assert!(matches!(failure, Failure::NotSent(_)), "nothing was executed: {text}");
        }
        let busy = explain(&Status::new(Code::ResourceExhausted, "etcdserver: too many requests"));
        assert!(matches!(busy, Failure::Busy(_)), "the connection is well, and nothing was executed");
        assert!(exists(&Status::new(Code::FailedPrecondition, "etcdserver: lease already exists")));
        assert!(is_missing(&Status::new(Code::NotFound, "etcdserver: requested lease not found")));
    }
}
