//! Which lock to choose: three questions about safety, and the speed where it decides.
//!
//! A backend that may grant a lock twice is never named where that must not happen, however fast it is. And
//! nothing is said about speed where the figures cannot be told apart, or are not to be used.

use crate::view::family::Candidate;
use crate::view::overview::Overview;
use crate::view::speed::{Speed, UNKNOWN, names};

/// What the answers mean: below them.
pub(crate) const TERMS: &str = "verify_in: a call in the transaction that writes; it fails if the lock was lost. Fencing token: a number \
     that rises with each grant; the target refuses lower ones. Idempotency key: requests with it take effect once. Lease: how long a lock \
     is held without renewal; a holder paused for longer may still act.";

/// For work that is not in one database alone, since it acts elsewhere, too. For how long providers remember
/// keys, by their documentation, is in docs/fencing.md.
pub(crate) const BILLING: [&str; 2] = [
    "Billing: no lock alone prevents a second charge.",
    "Insert a row with a unique key, such as customer and month; commit; charge with that idempotency key; mark the row paid, and keep \
     it. After a crash, charge unpaid rows while the provider knows their keys (Stripe: at least 24 hours); later, ask it first.",
];

/// Which of several databases to choose, if one of them can check the lock where the work writes, and why.
const OF_SEVERAL: [&str; 2] = [
    "; if you run both kinds, the SQL database",
    "; unlike Redis, an SQL database can refuse the writes of a second holder (verify_in)",
];

/// The questions, in the order in which they are asked.
pub(crate) const QUESTIONS: [&str; 3] = [
    "Are the holders on several hosts?",
    "What if a failover gives two hosts the lock?",
    "Which server do you run already?",
];

/// What to choose for one set of answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Advice {
    /// The answers to the three questions.
    pub(crate) answers: [&'static str; 3],
    /// The same within a sentence.
    pub(crate) condition: &'static str,
    pub(crate) choice: String,
    /// Goes on after "because".
    pub(crate) because: String,
}

/// One set of answers.
struct Case {
    answers: [&'static str; 3],
    condition: &'static str,
    fits: fn(&Candidate) -> bool,
    reason: &'static str,
    decides: Decides,
}

/// What decides among those that fit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Decides {
    /// The fastest, where one is; all that fit otherwise.
    Speed,
    /// Without figures, nothing is named.
    SpeedAlone,
    /// What they promise: all that fit are named, and the speed beside them.
    Promise,
    /// The one that is there, with these words before it.
    Presence(&'static str),
}

const CASES: [Case; 5] = [
    Case {
        answers: ["no", "nothing fails over", "any, or none"],
        condition: "all holders run on one host",
        fits: |it| !it.across_hosts,
        reason: "it needs no server",
        decides: Decides::Speed,
    },
    Case {
        answers: [
            "yes",
            "the database refuses one: the work writes only to the database that has the lock",
            "an SQL database",
        ],
        condition: "there are several hosts and the work writes only to an SQL database",
        fits: |it| it.across_hosts && it.verifies(),
        reason: "with verify_in, only one holder's transactions commit, after a failover as well",
        decides: Decides::Presence("that database"),
    },
    Case {
        answers: [
            "yes",
            "no harm: doing it twice changes nothing (charges with an idempotency key), or the target refuses old fencing tokens",
            "a database, Redis or Valkey",
        ],
        condition: "a second grant does no harm, since doing it twice changes nothing (charges with an idempotency key) or the target \
                    refuses old fencing tokens",
        fits: |it| it.across_hosts && it.is_database(),
        reason: "you need no further server; speed matters only at hundreds of locks a second",
        decides: Decides::Presence("the one that you run"),
    },
    Case {
        answers: ["yes", "no harm, as above", "none of these"],
        condition: "a second grant does no harm and you run no database",
        fits: |it| it.across_hosts,
        reason: "only speed decides here",
        decides: Decides::SpeedAlone,
    },
    Case {
        answers: ["yes", "harm: anything else, such as mail (for charges see below)", "any, or none"],
        condition: "a second grant does harm, as with mail (for charges see below)",
        fits: |it| it.across_hosts && it.failover_safe,
        reason: "nothing else here prevents that, but with any lock a paused holder may repeat the work",
        decides: Decides::Promise,
    },
];

/// A row for each set of answers.
pub(crate) fn advice(overview: &Overview) -> Vec<Advice> {
    CASES.iter().map(|case| one(case, overview)).collect()
}

fn one(case: &Case, overview: &Overview) -> Advice {
    let Case { answers, condition, fits, reason, decides } = *case;
    let fit: Vec<&Candidate> = overview.families.iter().filter(|it| fits(it)).collect();
    let (choice, because) = if fit.is_empty() {
        ("none of those measured".to_owned(), "no backend of this report fits".to_owned())
    } else {
        let speed = Speed::of(&fit, overview);
        let because = match decides {
            Decides::Presence(_) => format!("{reason}{}", of_several(&fit)[1]),
            Decides::Speed | Decides::SpeedAlone | Decides::Promise => format!("{reason}; {}", speed.words),
        };
        (choice(&speed, &fit, decides), because)
    };
    Advice { answers, condition, choice, because }
}

/// What is said where only some of those that fit can check the lock.
fn of_several(fit: &[&Candidate]) -> [&'static str; 2] {
    let verifying = fit.iter().filter(|it| it.verifies()).count();
    if (1..fit.len()).contains(&verifying) { OF_SEVERAL } else { [""; 2] }
}

/// Those whose speed is known to be the best, or all that fit.
fn choice(speed: &Speed, fit: &[&Candidate], decides: Decides) -> String {
    let all = || names(fit.iter().map(|it| named(it)), "or");
    let by_name = |family: &str| {
        fit.iter().find(|it| it.family == family).map_or_else(|| family.to_owned(), |it| named(it))
    };
    match (decides, &speed.fastest[..]) {
        (Decides::Presence(which), _) => format!("{which} ({}){}", all(), of_several(fit)[0]),
        (Decides::SpeedAlone, []) if fit.len() > 1 => UNKNOWN.to_owned(),
        (Decides::Promise, _) | (_, []) => all(),
        // It is nowhere known to be slower than another one.
        (_, [(_, first), ..]) if speed.leaders.iter().all(|leaders| leaders.contains(first)) => {
            by_name(first)
        }
        (_, several) => {
            names(several.iter().map(|(work, family)| format!("{} for {work}", by_name(family))), "or")
        }
    }
}

/// With what its promises depend on.
fn named(candidate: &Candidate) -> String {
    match candidate.provided {
        "" => candidate.family.clone(),
        provided => format!("{} ({provided})", candidate.family),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::conditions;
    use crate::view::Setting;
    use crate::view::line::Line;
    use crate::view::overview::tests::{candidate, column};
    use crate::view::rank::tests::line;

    /// Free locks and hand-overs of some backends, in microseconds.
    fn overview(figures: &[(&str, f64, f64)]) -> Overview {
        let families = figures.iter().map(|(backend, ..)| Candidate {
            across_hosts: *backend != "sqlite",
            failover_safe: ["sqlite", "redlock", "zookeeper3"].contains(backend),
            provided: if *backend == "redlock" { "if no clock steps forward" } else { "" },
            ..candidate(backend)
        });
        let lines = |figure: fn(&(&str, f64, f64)) -> f64| -> Vec<Line> {
            figures.iter().map(|it| line(it.0, figure(it), figure(it) / 100.0)).collect()
        };
        Overview {
            setting: Setting { machine: String::new(), conditions: conditions() },
            holds: "data on ext4".to_owned(),
            measured: String::new(),
            doubt: None,
            families: families.collect(),
            columns: vec![column(0, lines(|it| it.1)), column(1, lines(|it| it.2))],
        }
    }

    const ALL: [(&str, f64, f64); 5] = [
        ("sqlite", 250.0, 1400.0),
        ("postgres", 380.0, 720.0),
        ("redis", 10.0, 20.0),
        ("redlock", 900.0, 1800.0),
        ("zookeeper3", 1800.0, 1100.0),
    ];

    #[test]
    fn each_answer_has_its_figures_and_differences_in_words() {
        let told: Vec<_> = advice(&overview(&ALL))
            .into_iter()
            .map(|it| format!("{}, because {}", it.choice, it.because))
            .collect();
        let expected = [
            "SQLite, because it needs no server; a free lock takes 250 us, and a hand-over between processes takes 1.40 ms",
            "that database (PostgreSQL), because with verify_in, only one holder's transactions commit, after a failover as well",
            "the one that you run (PostgreSQL or Redis/Valkey); if you run both kinds, the SQL database, because you need no further \
             server; speed matters only at hundreds of locks a second; unlike Redis, an SQL database can refuse the writes of a second \
             holder (verify_in)",
            "Redis/Valkey, because only speed decides here; for a free lock Redis/Valkey is the fastest, 38 times as fast \
             as PostgreSQL (10.0 us and 380 us), and for a hand-over between processes Redis/Valkey is the fastest, 36 times as \
             fast as PostgreSQL (20.0 us and 720 us)",
            "Redlock (if no clock steps forward) or ZooKeeper, because nothing else here prevents that, but with any lock a paused \
             holder may repeat the work; for a free lock Redlock is twice as fast as ZooKeeper (900 us and 1.80 ms), and for a \
             hand-over between processes ZooKeeper is 1.6 times as fast as Redlock (1.10 ms and 1.80 ms)",
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn what_may_grant_twice_is_not_named_where_it_must_not() {
        for fastest in ["redis", "postgres"] {
            let figures = [(fastest, 1.0, 1.0), ("zookeeper3", 1e6, 1e6)];
            let never = &advice(&overview(&figures))[4];
            assert!(never.answers[1].starts_with("harm"));
            assert_eq!(never.choice, "ZooKeeper");
            let text = &never.because;
            assert!(!text.contains("Redis") && !text.contains("PostgreSQL"), "{text}");
        }
        let none = &advice(&overview(&[("redis", 1.0, 1.0)]))[4];
        assert_eq!(none.choice, "none of those measured");
    }

    #[test]
    fn of_one_kind_of_server_alone_none_is_preferred() {
        for family in ["redis", "postgres"] {
            let choice = &advice(&overview(&[(family, 1.0, 1.0)]))[2].choice;
            assert!(choice.starts_with("the one that you run (") && choice.ends_with(')'), "{choice}");
        }
    }

    #[test]
    fn what_cannot_be_told_apart_is_not_recommended() {
        let told = advice(&overview(&[("postgres", 380.0, 720.0), ("redis", 381.0, 721.0)]));
        assert_eq!(told[3].choice, UNKNOWN);
        assert!(
            told[3].because.contains(
                "for a free lock PostgreSQL and Redis/Valkey cannot be told apart (380 us and 381 us)"
            ),
            "{}",
            told[3].because
        );
        // Different, but on a machine on which such a difference says nothing.
        let mut noisy = overview(&[("postgres", 380.0, 720.0), ("redis", 480.0, 900.0)]);
        assert_eq!(advice(&noisy)[3].choice, "PostgreSQL");
        for line in noisy.columns.iter_mut().flat_map(|column| &mut column.lines) {
            line.noise = 1.4;
        }
        assert_eq!(advice(&noisy)[3].choice, UNKNOWN);
    }

    #[test]
    fn who_is_slower_at_something_is_named_for_the_rest_only() {
        let figures = [("postgres", 380.0, 720.0), ("redis", 10.0, 2000.0), ("zookeeper3", 900.0, 721.0)];
        assert_eq!(advice(&overview(&figures))[3].choice, "Redis/Valkey for a free lock");
        let alike = [("postgres", 380.0, 720.0), ("redis", 10.0, 721.0), ("zookeeper3", 900.0, 2000.0)];
        assert_eq!(advice(&overview(&alike))[3].choice, "Redis/Valkey");
    }

    #[test]
    fn a_figure_that_is_missing_is_told() {
        let mut some = overview(&[("redlock", 900.0, 1800.0), ("zookeeper3", 1800.0, 1100.0)]);
        some.columns.truncate(1);
        some.columns[0].lines.retain(|line| line.who == "redlock");
        let because = &advice(&some)[4].because;
        assert!(
            because.ends_with("a free lock takes 900 us on Redlock (not measured: ZooKeeper)"),
            "{because}"
        );
    }

    #[test]
    fn figures_that_are_not_to_be_used_decide_nothing() {
        let told = advice(&Overview { doubt: Some("a load of 8".to_owned()), ..overview(&ALL) });
        let choices: Vec<_> = told.iter().map(|it| &*it.choice).collect();
        assert_eq!(
            choices,
            [
                "SQLite",
                "that database (PostgreSQL)",
                "the one that you run (PostgreSQL or Redis/Valkey); if you run both kinds, the SQL database",
                UNKNOWN,
                "Redlock (if no clock steps forward) or ZooKeeper",
            ]
        );
        for place in [0, 3, 4] {
            let because = &told[place].because;
            assert!(because.ends_with("; the speed is unknown"), "{because}");
        }
    }

    #[test]
    fn a_family_without_figures_is_told_so() {
        let mut bare = overview(&[("sqlite", 1.0, 1.0)]);
        bare.columns.clear();
        assert!(advice(&bare)[0].because.ends_with("how fast it is was not measured"));
    }
}
