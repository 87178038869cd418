//! The scripts that run in the server.

use std::sync::LazyLock;

use redis::Cmd;

/// A script, known to the server by the hash of its text.
#[derive(Debug)]
pub(crate) struct Script {
    source: &'static str,
    hash: String,
    /// How many keys and arguments at the front concern the whole call and not one item of it. `None`: a call takes one
    /// item.
    pub(crate) lead: Option<(usize, usize)>,
}

impl Script {
    fn new(source: &'static str, lead: Option<(usize, usize)>) -> Self {
        Self { source, hash: redis::Script::new(source).get_hash().to_owned(), lead }
    }

    /// The command that runs it: by its hash, or with its text when the server does not know it, as after a restart.
    pub(crate) fn call(&self, by_text: bool, keys: usize) -> Cmd {
        let mut command = if by_text { redis::cmd("EVAL") } else { redis::cmd("EVALSHA") };
        command.arg(if by_text { self.source } else { &self.hash }).arg(keys);
        command
    }

    /// The Redis command in this line of the script, for an error that names the line only.
    pub(crate) fn command_at(&self, line: usize) -> Option<&'static str> {
        let line = self.source.lines().nth(line.checked_sub(1)?)?;
        let (_, rest) = line.split_once("redis.call('")?;
        rest.split_once('\'').map(|(command, _)| command)
    }
}

macro_rules! scripts {
    ($($(#[$doc:meta])* $name:ident = $file:literal, $lead:expr;)*) => {
        $($(#[$doc])*
        pub(crate) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new(include_str!(concat!("scripts/", $file)), $lead));)*
    };
}

scripts! {
    /// Takes locks or joins their queues.
    TAKE = "take.lua", Some((1, 2));
    /// Gives claims up.
    RELEASE = "release.lua", Some((0, 2));
    /// Extends leases.
    RENEW = "renew.lua", None;
    /// Says who holds a lock.
    INSPECT = "inspect.lua", None;
    /// Frees a lock whoever holds it.
    FORCE = "force.lua", None;
    /// Redlock, phase 1.
    VOTE = "vote.lua", Some((0, 1));
    /// Redlock, phase 2.
    INSTALL = "install.lua", Some((0, 0));
    /// Gives places in queues up.
    LEAVE = "leave.lua", None;
    /// Redlock: sets a lock again where it was lost.
    PLANT = "plant.lua", None;
    /// Redlock: reads the token counters.
    COUNTERS = "counters.lua", None;
    /// Redlock: raises the token counters of a node that lost them.
    MEND = "mend.lua", None;
    /// Says which rights are missing.
    RIGHTS = "rights.lua", None;
    /// Writes data if the token is acceptable.
    FENCED_WRITE = "fenced_write.lua", None;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_its_command() {
        let line = TAKE.source.lines().position(|line| line.contains("GETSET")).unwrap() + 1;
        assert_eq!(TAKE.command_at(line), Some("GETSET"));
        assert_eq!(TAKE.command_at(1), None);
        assert_eq!(TAKE.command_at(0), None);
        assert_eq!(TAKE.command_at(9999), None);
    }
}
