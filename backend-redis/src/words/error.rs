//! From the errors of the client crate and of scripts to ours.

use lockwell_core::{Error, ErrorKind};
use redis::{ErrorKind as Kind, RedisError, ServerErrorKind, Value};

use crate::words::script::Script;

/// The code of an error of our own: a server that does not meet the demands of `strict=true`.
pub(crate) const STRICT: &str = "LOCKWELLSTRICT";
/// The code of our own error: `strict=true` cannot be checked.
pub(crate) const UNCHECKED: &str = "LOCKWELLUNCHECKED";
/// The code of our own error: a server that may have forgotten grants.
pub(crate) const GRACE: &str = "LOCKWELLGRACE";
/// The code of our own error: clients that disagree on the longest lease.
pub(crate) const LONGEST: &str = "LOCKWELLLONGEST";
/// The code of our own error: a server that does not say who it is.
pub(crate) const NO_IDENTITY: &str = "LOCKWELLIDENTITY";
/// The code of our own error: sentinels that ask for another login.
pub(crate) const SENTINEL_LOGIN: &str = "LOCKWELLSENTINEL";

/// The code of our own error: no majority of the sentinels names a master.
pub(crate) const NO_MAJORITY: &str = "LOCKWELLMAJORITY";

/// The code of our own error: the password of a connection could not be had.
pub(crate) const NO_PASSWORD: &str = "LOCKWELLNOPASSWORD";

/// What an error means for the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorClass {
    /// The server does not know the script.
    NoScript,
    /// Not done; retry soon.
    Retry,
    /// Not done: the keys of the slot are at two nodes of the cluster while it is moved.
    Torn,
    /// Not done: another node of the cluster serves the slot.
    Elsewhere,
    /// The connection cannot be used any more. The outcome of the request is unknown.
    Broken,
    /// It will not work.
    Fatal,
}

pub(crate) fn classify(error: &RedisError, elsewhere: bool) -> ErrorClass {
    match error.kind() {
        Kind::Server(ServerErrorKind::NoScript) => ErrorClass::NoScript,
        // Another script is running; ours has not begun.
        _ if error.code() == Some("BUSY") => ErrorClass::Retry,
        _ if matches!(error.code(), Some(NO_PASSWORD | NO_MAJORITY)) => ErrorClass::Retry,
        // The server closes the connection after this error.
        _ if is_full(error) => ErrorClass::Broken,
        Kind::Server(
            ServerErrorKind::BusyLoading | ServerErrorKind::MasterDown | ServerErrorKind::ClusterDown,
        ) => ErrorClass::Retry,
        Kind::Server(ServerErrorKind::TryAgain) => ErrorClass::Torn,
        Kind::Server(ServerErrorKind::Moved | ServerErrorKind::Ask) => ErrorClass::Elsewhere,
        // After a failover the old connection leads to a replica. A client that can find the new master
        // reconnects.
        Kind::Server(ServerErrorKind::ReadOnly) if elsewhere => ErrorClass::Broken,
        // It will be refused again.
        Kind::Io if is_untrusted(error) => ErrorClass::Fatal,
        Kind::Io => ErrorClass::Broken,
        // A server that is shutting down or not yet up may cut its answer short.
        Kind::Parse if error.is_connection_dropped() => ErrorClass::Broken,
        _ => ErrorClass::Fatal,
    }
}

/// The error of a call that needs several keys of a slot while they are at two nodes.
pub(crate) const SLOT_MOVES: &str = "the slot of this lock is being moved to another node of the cluster";

fn is_untrusted(error: &RedisError) -> bool {
    lockwell_core::tls::is_untrusted(&error.to_string())
}

fn is_full(error: &RedisError) -> bool {
    error.detail().is_some_and(|detail| detail.contains("max number of clients"))
}

/// Whether the server refuses the login.
pub(crate) fn is_wrong_password(error: &RedisError) -> bool {
    error.kind() == Kind::AuthenticationFailed || error.code() == Some("WRONGPASS")
}

/// Whether the user has no right to the command, or the server does not have it, as after `rename-command`.
pub(crate) fn is_denied(error: &RedisError) -> bool {
    error.kind() == Kind::Server(ServerErrorKind::NoPerm)
        || error.detail().is_some_and(|detail| detail.starts_with("unknown command"))
}

/// What a server answers to most requests while it reads its files.
pub(crate) fn loading() -> RedisError {
    (Kind::Server(ServerErrorKind::BusyLoading), "the server is loading its data").into()
}

/// The error of a request without an answer in time.
pub(crate) fn no_answer(cause: Option<&RedisError>) -> Error {
    let Some(cause) = cause else {
        return Error::new(ErrorKind::Unreachable, "Redis cannot be reached or does not answer");
    };
    if matches!(cause.code(), Some(NO_PASSWORD | NO_MAJORITY)) {
        return Error::new(ErrorKind::Unreachable, cause.detail().unwrap_or_default());
    }
    let text = match cause.kind() {
        Kind::Server(ServerErrorKind::BusyLoading) => "Redis is still loading its data",
        Kind::Server(ServerErrorKind::ClusterDown) => "the cluster is down: not all slots are served",
        Kind::Server(ServerErrorKind::TryAgain | ServerErrorKind::Ask) => SLOT_MOVES,
        Kind::Server(ServerErrorKind::Moved) => {
            "the nodes of the cluster do not agree on who serves the slot of this lock"
        }
        Kind::Server(ServerErrorKind::MasterDown) => "the replica has lost its master",
        Kind::Server(ServerErrorKind::ReadOnly) => "no writable master could be found",
        _ if is_full(cause) => "the server has reached its maxclients",
        // What a port with TLS does with what is not TLS.
        Kind::Io if cause.to_string().contains("reset by peer") => {
            "Redis closes the connection; a port with TLS needs an address with rediss://"
        }
        _ if cause.code() == Some("BUSY") => "Redis is busy with somebody's script (SCRIPT KILL ends it)",
        _ => "Redis cannot be reached or does not answer",
    };
    Error::new(ErrorKind::Unreachable, text).with_source(cause.to_string())
}

/// The error that a command of a script got as its answer. Up to Redis 6 it is within an error of the script,
/// whose code is always `ERR`.
pub(crate) fn of_command(error: RedisError) -> RedisError {
    let Some(answer) = error.detail().and_then(answer_in_script) else { return error };
    match redis::parse_redis_value(format!("-{answer}\r\n").as_bytes()) {
        Ok(Value::ServerError(inner)) => inner.into(),
        _ => error,
    }
}

/// The answer in a text such as `Error running script (call to f_HASH): @user_script:27: @user_script: 27:
/// -READONLY You can't write against a read only replica.`, with the line of the script behind it, as in
/// later releases. None: the error is one of the script itself.
fn answer_in_script(detail: &str) -> Option<String> {
    let (_, inner) = detail.strip_prefix("Error running script (call to ")?.split_once("): @user_script:")?;
    let (line, inner) = inner.split_once(": ")?;
    // The line comes twice if the command was refused before it ran.
    let again = inner.strip_prefix("@user_script: ").and_then(|rest| rest.split_once(": "));
    let answer = again.map_or(inner, |(_, rest)| rest.trim_start_matches('-'));
    is_code(answer.split(' ').next()?).then(|| format!("{answer} on @user_script:{line}."))
}

fn is_code(word: &str) -> bool {
    word.len() > 1 && word.bytes().all(|byte| byte.is_ascii_uppercase())
}

/// The error if there is no connection.
pub(crate) fn no_link(error: &RedisError) -> Error {
    match classify(error, true) {
        ErrorClass::Retry | ErrorClass::Torn | ErrorClass::Broken => no_answer(Some(error)),
        ErrorClass::NoScript | ErrorClass::Elsewhere | ErrorClass::Fatal => fatal(error, None),
    }
}

/// A final error of the command, or of the script that was to run.
pub(crate) fn fatal(error: &RedisError, script: Option<&Script>) -> Error {
    let (kind, hint) = match error.kind() {
        Kind::Io if is_untrusted(error) => {
            return lockwell_core::tls::untrusted(&error.to_string(), "ca=FILE");
        }
        Kind::AuthenticationFailed => (ErrorKind::Refused, WRONG_PASSWORD),
        Kind::InvalidClientConfig => (ErrorKind::InvalidInput, "the address is not usable"),
        Kind::MasterNameNotFoundBySentinel => {
            (ErrorKind::Misconfigured, "no sentinel knows a master of this name")
        }
        Kind::Parse | Kind::UnexpectedReturnType => (
            ErrorKind::Misconfigured,
            "what answers at this address is not Redis; a port with TLS needs rediss://",
        ),
        Kind::RESP3NotSupported => (ErrorKind::Misconfigured, TOO_OLD),
        _ => match error.code() {
            Some(code) => return of_server(code, error.detail().unwrap_or_default(), script),
            None => (ErrorKind::Internal, "an unexpected answer"),
        },
    };
    Error::new(kind, hint).with_source(error.to_string())
}

/// The error that a script caught for one of its claims. It says whether the lock's own key has another type.
pub(crate) fn of_claim(text: &str, at_lock: bool) -> Error {
    let (code, detail) = match text.split_once(' ') {
        Some((code, detail)) if is_code(code) => (code, detail),
        _ => ("ERR", text),
    };
    match (code, at_lock) {
        ("WRONGTYPE", true) => {
            Error::new(ErrorKind::KindClash, NO_LOCK).for_good().with_source(text.to_owned())
        }
        ("WRONGTYPE", false) => Error::new(ErrorKind::Misconfigured, SPOILT).with_source(text.to_owned()),
        _ => of_server(code, detail, None),
    }
}

const NO_LOCK: &str =
    "the lock's key holds something that is not a plain lock: another program's data, or a lock of Redisson";
const WRONG_PASSWORD: &str = "user or password is wrong";
const TOO_OLD: &str = "the server is too old: Redis 6.0 is needed";
const A_CLUSTER: &str = "the server is part of a cluster: use redis+cluster:// to reach it";
const INTERRUPTED: &str = "somebody has interrupted a script or a command";
const SPOILT: &str = "one of the keys beside the lock holds something else than lockwell wrote";

fn of_server(code: &str, detail: &str, script: Option<&Script>) -> Error {
    let call = script.and_then(|script| script.call_at(line_of(detail)?));
    // A refusal of a command in a script has no code of its own, and another text since Redis 8.
    let denied = code == "NOPERM"
        || detail.contains("ACL failure in script")
        || detail.contains("The user executing the script can't")
        || detail.contains("NOPERM");
    let (kind, hint) = match code {
        _ if denied => {
            let what =
                call.map_or_else(|| detail.to_owned(), |call| format!("{} is not allowed", call.command));
            return Error::new(ErrorKind::Refused, format!("the user lacks a right: {what}"))
                .with_source(format!("{code} {detail}"));
        }
        STRICT | LONGEST | NO_IDENTITY => return Error::new(ErrorKind::Misconfigured, detail),
        GRACE => return Error::new(ErrorKind::GracePeriod, detail),
        UNCHECKED => return Error::new(ErrorKind::Refused, detail),
        SENTINEL_LOGIN => (
            ErrorKind::Refused,
            "the sentinels ask for a user or a password that they do not get: sentinel_user=USER and \
             sentinel_password=PASSWORD, or sentinel_password_file=FILE",
        ),
        "WRONGPASS" => (ErrorKind::Refused, WRONG_PASSWORD),
        "NOAUTH" => (
            ErrorKind::Refused,
            "the server asks for a password, and the address has none: redis://USER:PASSWORD@HOST",
        ),
        "WRONGTYPE" => match call.map(|call| call.key) {
            Some("lock") => (ErrorKind::KindClash, NO_LOCK),
            Some("fence") | None => {
                (ErrorKind::KindClash, "the key holds something else than lockwell wrote")
            }
            Some(_) => (ErrorKind::Misconfigured, SPOILT),
        },
        "READONLY" => (ErrorKind::Misconfigured, "the server is read only: is it a replica?"),
        "OOM" => (ErrorKind::Misconfigured, "the server has reached its maxmemory"),
        "MISCONF" => (ErrorKind::Misconfigured, "the server cannot write to its disk, and refuses changes"),
        "NOREPLICAS" => (ErrorKind::Misconfigured, "the server has fewer replicas than it demands"),
        "MOVED" | "ASK" | "CROSSSLOT" | "REDIRECT" => (ErrorKind::Misconfigured, A_CLUSTER),
        "DENIED" => (
            ErrorKind::Refused,
            "the server is in protected mode and takes connections from its own host only: give it a password",
        ),
        "NOPROTO" => (ErrorKind::Misconfigured, TOO_OLD),
        "NOTBUSY" | "UNKILLABLE" | "UNBLOCKED" => (ErrorKind::Conflict, INTERRUPTED),
        "EXECABORT" => (ErrorKind::Misconfigured, "the server, or a proxy, has refused a transaction"),
        // What passes: see `classify`.
        "LOADING" | "BUSY" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" => {
            (ErrorKind::Unreachable, "the server cannot answer at present")
        }
        "NOMASTERLINK" | "NOGOODSLAVE" | "NOQUORUM" | "INPROG" | "IDONTKNOW" => {
            (ErrorKind::Unreachable, "the server is in the middle of a failover")
        }
        // Of servers before ACLs, or without a password.
        "ERR" if detail.contains("AUTH") || detail.contains("invalid password") => {
            (ErrorKind::Refused, WRONG_PASSWORD)
        }
        "ERR" if detail.contains("SELECT is not allowed in cluster mode") => {
            (ErrorKind::Misconfigured, A_CLUSTER)
        }
        _ if detail.contains("unknown command 'HELLO'") => (ErrorKind::Misconfigured, TOO_OLD),
        _ if detail.starts_with("unknown command") || detail.contains("Unknown Redis command") => (
            ErrorKind::Misconfigured,
            "the server does not know a command that locks need: is it a sentinel (redis+sentinel://), or are commands \
             renamed?",
        ),
        _ if detail.contains("attempt to") || detail.contains("number expected, got nil") => {
            (ErrorKind::Misconfigured, SPOILT)
        }
        _ if detail.contains("cluster support disabled") => {
            (ErrorKind::Misconfigured, "the server is not part of a cluster: use redis:// to reach it")
        }
        _ if detail.contains("Script killed by user") => (ErrorKind::Conflict, INTERRUPTED),
        _ if detail.contains("DB index is out of range") || detail.contains("invalid DB index") => {
            (ErrorKind::Misconfigured, "the server has no database of this number")
        }
        _ => (ErrorKind::Internal, "Redis refused a command"),
    };
    let error = Error::new(kind, hint).with_source(format!("{code} {detail}"));
    // What another program has written stays.
    if kind == ErrorKind::KindClash { error.for_good() } else { error }
}

/// The line of a script that an error text names, as in `on @user_script:23.`
fn line_of(detail: &str) -> Option<usize> {
    let (_, rest) = detail.split_once("user_script:")?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

pub(crate) fn unexpected() -> Error {
    Error::new(ErrorKind::Internal, "a script answered in an unexpected form")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::script::RELEASE;

    #[test]
    fn kinds_follow_the_code() {
        for (text, kind) in [
            ("WRONGTYPE Operation against a key holding the wrong kind of value", ErrorKind::KindClash),
            ("OOM command not allowed when used memory > 'maxmemory'.", ErrorKind::Misconfigured),
            ("NOPERM this user has no permissions", ErrorKind::Refused),
            ("The user executing the script can't run this command or subcommand", ErrorKind::Refused),
            ("ERR something else", ErrorKind::Internal),
            ("", ErrorKind::Internal),
        ] {
            assert_eq!(of_claim(text, true).kind(), kind, "{text}");
        }
        let beside = of_claim("WRONGTYPE Operation against a key holding the wrong kind of value", false);
        assert_eq!(beside.kind(), ErrorKind::Misconfigured);
    }

    /// What Redis 6.0.16 answers.
    #[test]
    fn an_answer_within_an_error_of_a_script_counts() {
        let error_of = |detail: &str| {
            let text = format!("-ERR Error running script (call to f_131b5f2ed4a6): {detail}\r\n");
            let Ok(Value::ServerError(error)) = redis::parse_redis_value(text.as_bytes()) else {
                panic!("{text} is no error");
            };
            of_command(error.into())
        };
        let refused = error_of(
            "@user_script:1: @user_script: 1: -READONLY You can't write against a read only replica.",
        );
        assert_eq!(refused.kind(), Kind::Server(ServerErrorKind::ReadOnly));
        for (detail, code, kind) in [
            (
                "@user_script:27: @user_script: 27: -NOREPLICAS Not enough good replicas to write.",
                "NOREPLICAS",
                ErrorKind::Misconfigured,
            ),
            (
                "@user_script:12: WRONGTYPE Operation against a key holding the wrong kind of value",
                "WRONGTYPE",
                ErrorKind::KindClash,
            ),
            (
                "@user_script:1: @user_script: 1: The user executing the script can't run this command or subcommand",
                "ERR",
                ErrorKind::Refused,
            ),
            (
                "@user_script:1: @user_script: 1: Unknown Redis command called from Lua script",
                "ERR",
                ErrorKind::Misconfigured,
            ),
            ("@user_script:3: attempt to index a nil value", "ERR", ErrorKind::Misconfigured),
            ("@user_script:3: A mistake", "ERR", ErrorKind::Internal),
        ] {
            let error = error_of(detail);
            assert_eq!((error.code(), fatal(&error, None).kind()), (Some(code), kind), "{detail}");
        }
        let twelve =
            error_of("@user_script:12: WRONGTYPE Operation against a key holding the wrong kind of value");
        assert_eq!(line_of(twelve.detail().expect("a text")), Some(12));
        for other in ["@user_script:", "@user_script:1", "@user_script:1: ", "no line"] {
            assert_eq!(error_of(other).code(), Some("ERR"), "{other}");
        }
    }

    /// The errors that Redis and Valkey have codes for, and what passes and what does not.
    #[test]
    fn every_answer_that_a_server_may_give_is_known() {
        use ErrorClass::{Broken, Elsewhere, Fatal, NoScript, Retry, Torn};
        for (class, kind, texts) in [
            (
                Retry,
                ErrorKind::Unreachable,
                &[
                    "LOADING Redis is loading the dataset in memory",
                    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
                    "CLUSTERDOWN The cluster is down",
                    "CLUSTERDOWN Hash slot not served",
                    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
                ][..],
            ),
            (Torn, ErrorKind::Unreachable, &["TRYAGAIN Multiple keys request during rehashing of slot"]),
            (Broken, ErrorKind::Unreachable, &["ERR max number of clients reached"]),
            (Elsewhere, ErrorKind::Misconfigured, &["MOVED 3999 127.0.0.1:6381", "ASK 3999 127.0.0.1:6381"]),
            (
                Fatal,
                ErrorKind::Unreachable,
                &["NOMASTERLINK Can't SYNC while failing over", "NOGOODSLAVE No suitable replica to promote"],
            ),
            (
                Fatal,
                ErrorKind::Refused,
                &[
                    "NOPERM this user has no permissions to run the 'eval' command",
                    "NOAUTH Authentication required.",
                    "WRONGPASS invalid username-password pair or user is disabled.",
                    "DENIED Redis is running in protected mode because protected mode is enabled",
                    "ERR AUTH <password> called without any password configured for the default user. Are you sure \
                     your configuration is correct?",
                    "ERR invalid password",
                    "ERR Client sent AUTH, but no password is set",
                ],
            ),
            (
                Fatal,
                ErrorKind::Misconfigured,
                &[
                    "OOM command not allowed when used memory > 'maxmemory'.",
                    "MISCONF Errors writing to the AOF file: No space left on device",
                    "NOREPLICAS Not enough good replicas to write.",
                    "CROSSSLOT Keys in request don't hash to the same slot",
                    "REDIRECT 127.0.0.1:6381",
                    "NOPROTO unsupported protocol version",
                    "EXECABORT Transaction discarded because of previous errors.",
                    "ERR unknown command 'EVALSHA', with args beginning with: ",
                    "ERR This instance has cluster support disabled",
                    "ERR DB index is out of range",
                    "ERR SELECT is not allowed in cluster mode",
                ],
            ),
            (
                Fatal,
                ErrorKind::Conflict,
                &[
                    "UNKILLABLE Sorry the script already executed write commands against the dataset.",
                    "NOTBUSY No scripts in execution right now.",
                    "UNBLOCKED client unblocked via CLIENT UNBLOCK",
                    "ERR Error running script (call to f_1): @user_script:1: Script killed by user with SCRIPT KILL.",
                ],
            ),
            (
                Fatal,
                ErrorKind::KindClash,
                &["WRONGTYPE Operation against a key holding the wrong kind of value"],
            ),
            (Fatal, ErrorKind::Internal, &["ERR something else"]),
        ] {
            for text in texts {
                let Ok(Value::ServerError(error)) =
                    redis::parse_redis_value(format!("-{text}\r\n").as_bytes())
                else {
                    panic!("{text} is no error");
                };
                let error = of_command(error.into());
                assert_eq!(classify(&error, true), class, "{text}");
                assert_eq!(no_link(&error).kind(), kind, "{text}");
            }
        }
        let parsed = |text: &str| match redis::parse_redis_value(format!("-{text}\r\n").as_bytes()) {
            Ok(Value::ServerError(error)) => RedisError::from(error),
            other => panic!("{other:?}"),
        };
        assert_eq!(classify(&parsed("NOSCRIPT No matching script."), true), NoScript);
        // A client that finds the new master connects again; another one cannot.
        let readonly = parsed("READONLY You can't write against a read only replica.");
        assert_eq!((classify(&readonly, true), classify(&readonly, false)), (Broken, Fatal));
        assert_eq!(fatal(&readonly, None).kind(), ErrorKind::Misconfigured);
    }

    #[test]
    fn a_missing_right_is_named() {
        let line =
            include_str!("../scripts/release.lua").lines().position(|line| line.contains("'DEL'")).unwrap()
                + 1;
        for why in [
            "The user executing the script can't run this command or subcommand",
            "ACL failure in script: User app has no permissions to run the 'del' command",
        ] {
            let text = format!("{why} script: 2f, on @user_script:{line}.");
            let error = of_server("ERR", &text, Some(&RELEASE));
            assert_eq!(error.kind(), ErrorKind::Refused);
            assert!(error.to_string().contains("DEL"), "{error}");
        }
    }
}
