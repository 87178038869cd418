//! Words that stand beside figures, and what they mean: shown where they stand.

use crate::view::Question;

/// Words of remarks, and what they mean.
const WORDS: [(&str, &str); 8] = [
    ("Jain", "Jain: 1 if all got the lock equally often, 1/n if one of n got it every time."),
    ("wake-ups", "Wake-ups: notifications that the server sent for each acquisition."),
    ("noisy", "Noisy: the interval of the median is wider than 5 % to either side."),
    (
        "unsteady",
        "Unsteady: the raw statements themselves changed by half or more between the rounds (the disk, or other work on this \
         machine).",
    ),
    ("OVERLAPS", "OVERLAPS: so often two held the lock at once. Such a lock has no rank."),
    (
        "falls behind",
        "Falls behind: fewer requests were answered than arrived, so that the latency grows with the length of the test.",
    ),
    (
        "server_order=",
        "server_order=true: requests are served in the order in which they reach the server, not process by process.",
    ),
    (
        "1000/20ms",
        "hand_off=1000/20ms (hand_over in earlier runs): up to 1000 tasks of a process, or all within 20 ms, have the lock before another process does.",
    ),
];

/// Those of its lines.
pub(crate) fn told(question: &Question) -> impl Iterator<Item = &'static str> {
    let occurs = |word: &str| {
        let mut lines = question.groups.iter().flat_map(|group| &group.lines);
        lines.any(|line| line.who.contains(word) || line.remarks.iter().any(|remark| remark.contains(word)))
    };
    WORDS.iter().filter(move |(word, _)| occurs(word)).map(|(_, meaning)| *meaning)
}
