//! The note that a Redlock node has beside its token counters.

use crate::words::info::Info;

/// Follows the run of the server in the text of a note whose run keeps every change.
const KEPT: &str = ":kept";

/// What the note of a node says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    /// The run of the server that has its token counters.
    run: String,
    /// Whether what that run has answered is on the disk, so that the next run has it.
    pub(super) kept: bool,
}

impl Note {
    pub(super) fn new(run_id: &str, kept: bool) -> Self {
        Self { run: run_id.to_owned(), kept }
    }

    /// Reads the answer of `read_counters.lua`, which is 0 where there is none.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let run = text.strip_suffix(KEPT);
        (text != "0").then(|| Self::new(run.unwrap_or(text), run.is_some()))
    }

    pub(super) fn text(&self) -> String {
        format!("{}{}", self.run, if self.kept { KEPT } else { "" })
    }

    /// This note without the word that every change is kept.
    pub(super) fn not_kept(&self) -> Self {
        Self::new(&self.run, false)
    }

    /// Whether it is of the same run as another one.
    pub(super) fn is_same_run(&self, other: &Self) -> bool {
        self.is_of(&other.run)
    }

    /// Whether it is of this run of the server.
    pub(super) fn is_of(&self, run_id: &str) -> bool {
        !run_id.is_empty() && self.run == run_id
    }
}

/// Whether a node has all that it has ever answered, and so has a vote from its start.
///
/// `keeps`: whether it answers only after its change is on the disk, by its settings now. They say nothing of
/// an earlier run, which may have had others: what that one lost stays lost. Its note says what it had.
pub(super) fn remembers(keeps: bool, info: &Info, noted: Option<&Note>, run_id: &str) -> bool {
    keeps && !has_rewritten(info) && noted.is_none_or(|note| note.kept || note.is_of(run_id))
}

/// Whether the append-only file was written anew in this run. Switching it on does that, and a file that was
/// switched on after the start holds nothing of what was lost at the start. Other reasons cannot be told from
/// this one.
fn has_rewritten(info: &Info) -> bool {
    info.get("aof_last_rewrite_time_sec") != "-1" || is_rewriting(info)
}

/// Whether it is just being written anew. If it was switched on just now, it has not everything yet.
pub(super) fn is_rewriting(info: &Info) -> bool {
    info.get("aof_rewrite_in_progress") != "0" || info.get("aof_rewrite_scheduled") != "0"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_as_it_was_written() {
        assert_eq!(Note::parse("0"), None);
        for note in [Note::new("5f", true), Note::new("5f", false), Note::new("", false)] {
            assert_eq!(Note::parse(&note.text()), Some(note));
        }
        assert!(Note::new("5f", true).is_of("5f") && !Note::new("5f", true).is_of("5"));
        assert!(!Note::new("", false).is_of(""), "without INFO the run is unknown");
    }

    #[test]
    fn only_a_run_that_lost_nothing_is_followed_by_one_that_remembers() {
        let fields = |rewritten: &str| {
            let state = "aof_rewrite_in_progress:0\r\naof_rewrite_scheduled:0\r\n";
            Info::parse(&format!("{state}aof_last_rewrite_time_sec:{rewritten}\r\n"))
        };
        let (as_started, rewritten) = (fields("-1"), fields("0"));
        let (kept, lost) = (Note::new("last", true), Note::new("last", false));
        assert!(remembers(true, &as_started, None, "this"), "a new node");
        assert!(remembers(true, &as_started, Some(&kept), "this"));
        assert!(remembers(true, &as_started, Some(&Note::new("this", false)), "this"));
        assert!(!remembers(true, &as_started, Some(&lost), "this"));
        assert!(!remembers(false, &as_started, Some(&kept), "this"));
        assert!(!remembers(true, &rewritten, Some(&kept), "this"));
        assert!(!remembers(true, &Info::default(), Some(&kept), ""));
    }
}
