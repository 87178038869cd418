//! The scripts that run in the server.

use lockwell_core::backend::Constant;
use redis::Cmd;

/// A script, known to the server by the hash of its text.
#[derive(Debug)]
pub(crate) struct Script {
    source: String,
    hash: String,
    /// How several items share a call. `None`: a call takes one item.
    pub(crate) sharing: Option<Sharing>,
}

/// How several items share a call of a script.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sharing {
    /// How many keys and arguments at the front concern the whole call and not one item of it.
    pub(crate) lead: (usize, usize),
    /// The most items of a call: no call takes longer than about half a millisecond of the server's time.
    pub(crate) most: usize,
}

const fn sharing(keys: usize, args: usize, most: usize) -> Sharing {
    Sharing { lead: (keys, args), most }
}

/// A call of Redis in a script: `redis.call('GET', lock)`, or `call` for short.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ScriptCall<'a> {
    pub(crate) command: &'a str,
    /// The first argument as the script writes it: the name of a variable, if it is a key.
    pub(crate) key: &'a str,
}

impl Script {
    fn new(source: &str, sharing: Option<Sharing>) -> Self {
        let source = assemble(source);
        Self { hash: redis::Script::new(&source).get_hash().to_owned(), source, sharing }
    }

    /// The command that runs it: by its hash, or with its text when the server does not know it, as after a
    /// restart. It reserves room for this number of keys and arguments, and their bytes.
    pub(crate) fn call(&self, by_text: bool, keys: usize, room: (usize, usize)) -> Cmd {
        let (name, script) = if by_text { ("EVAL", &self.source) } else { ("EVALSHA", &self.hash) };
        let mut command = Cmd::with_capacity(room.0 + 3, room.1 + name.len() + script.len() + 20);
        command.arg(name).arg(script).arg(keys);
        command
    }

    /// The call of Redis in this line of the script, for an error that names the line only.
    pub(crate) fn call_at(&self, line: usize) -> Option<ScriptCall<'_>> {
        let line = self.source.lines().nth(line.checked_sub(1)?)?;
        let (_, rest) = line.split_once("call('")?;
        let (command, rest) = rest.split_once('\'')?;
        let key = rest.trim_start_matches(", ").split([',', ')']).next()?;
        Some(ScriptCall { command, key })
    }
}

/// Puts the parts that scripts share in the places where they are included. Lines are counted in the whole.
fn assemble(source: &str) -> String {
    let part = |line: &'_ str| {
        let name = line.strip_prefix("-- include ")?;
        PARTS.iter().find(|(part, _)| *part == name).map(|(_, text)| *text)
    };
    let mut whole = String::new();
    for line in source.lines() {
        whole.push_str(part(line).unwrap_or(line).trim_end());
        whole.push('\n');
    }
    whole
}

macro_rules! parts {
    ($($file:literal)*) => {
        const PARTS: &[(&str, &str)] = &[$(($file, include_str!(concat!("../scripts/parts/", $file)))),*];
    };
}

parts! {
    "clock.lua" "each.lua" "group.lua" "grant_next.lua" "value_of.lua" "raise.lua" "record.lua" "tokens.lua" "vote.lua"
    "waiters.lua"
}

macro_rules! scripts {
    ($($(#[$doc:meta])* $name:ident = $file:literal, $sharing:expr;)*) => {
        $($(#[$doc])*
        pub(crate) static $name: Constant<Script> =
            Constant::new(|| Script::new(include_str!(concat!("../scripts/", $file)), $sharing));)*

        #[cfg(test)]
        const ALL: &[(&str, &Constant<Script>)] = &[$(($file, &$name)),*];
    };
}

scripts! {
    /// Takes exclusive locks that nobody holds or waits for.
    ACQUIRE = "acquire.lua", Some(sharing(1, 1, 128));
    /// Takes locks in any mode, or joins their queues.
    CLAIM = "claim.lua", Some(sharing(1, 4, 32));
    /// Releases exclusive locks that nobody waits for.
    RELEASE = "release.lua", Some(sharing(0, 0, 128));
    /// Releases claims in any mode, and grants to waiters.
    RELEASE_CLAIM = "release_claim.lua", Some(sharing(1, 4, 32));
    /// Extends leases.
    RENEW = "renew.lua", None;
    /// Turns a writer into a reader.
    DOWNGRADE = "downgrade.lua", None;
    /// Reads who holds a lock.
    INSPECT = "inspect.lua", None;
    /// Replaces the mark of a server, or the note of a node of Redlock.
    MARK = "mark.lua", None;
    /// Makes records of holders again that the server has forgotten.
    RECLAIM = "reclaim.lua", Some(sharing(1, 4, 32));
    /// Writes the record of a lock.
    WRITE_RECORD = "write_record.lua", None;
    /// Reads the record of a lock.
    READ_RECORD = "read_record.lua", None;
    /// Frees a lock from the holders that it names.
    FORCE = "force.lua", None;
    /// Redlock, phase 1 of exclusive claims for a lock that is free.
    VOTE = "redlock/vote.lua", Some(sharing(0, 0, 128));
    /// Redlock, phase 1 in any mode, with a place in the queue.
    CLAIM_VOTE = "redlock/claim.lua", Some(sharing(0, 4, 32));
    /// Redlock, phase 2.
    INSTALL = "redlock/install.lua", Some(sharing(0, 0, 64));
    /// Redlock: sets a lock again at a node that has lost it.
    REINSTATE = "redlock/reinstate.lua", Some(sharing(0, 0, 64));
    /// Redlock: reads the token counters.
    READ_COUNTERS = "redlock/read_counters.lua", None;
    /// Redlock: raises the token counters of a node that lost them.
    RESTORE_COUNTERS = "redlock/restore_counters.lua", None;
    /// Checks which rights are missing.
    RIGHTS = "rights.lua", None;
    /// Writes data if the token is acceptable.
    FENCED_WRITE = "fenced_write.lua", None;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line_with(script: &Script, text: &str) -> usize {
        script.source.lines().position(|line| line.contains(text)).unwrap() + 1
    }

    #[test]
    fn a_line_names_its_call() {
        let call = |text| FORCE.call_at(line_with(&FORCE, text)).map(|call| (call.command, call.key));
        assert_eq!(call("'DEL', lock"), Some(("DEL", "lock")));
        // In a part that other scripts have, too.
        assert_eq!(call("'HDEL'"), Some(("HDEL", "waiters")));
        assert_eq!(call("'TIME'"), Some(("TIME", "")));
        assert_eq!(FORCE.call_at(1), None);
        assert_eq!(FORCE.call_at(0), None);
        assert_eq!(FORCE.call_at(9999), None);
    }

    #[test]
    fn all_parts_are_found() {
        for (file, script) in ALL {
            assert!(!script.source.contains("-- include"), "{file}");
        }
    }
}
