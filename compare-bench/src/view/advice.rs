//! Which lock to choose, by safety. A backend that may grant a lock twice is never named where that must not
//! happen, however fast it is. How fast each is stands in the tables, with its rank.

use crate::view::family::Candidate;

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

/// What to choose for one kind of work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Advice {
    /// Within a sentence: "all holders run on one host".
    pub(crate) condition: &'static str,
    pub(crate) choice: String,
    /// Goes on after "because".
    pub(crate) because: &'static str,
}

struct Case {
    condition: &'static str,
    fits: fn(&Candidate) -> bool,
    because: &'static str,
    /// Stands before those that fit, where not all of them are meant.
    which: &'static str,
}

const CASES: [Case; 5] = [
    Case {
        condition: "all holders run on one host",
        fits: |it| !it.across_hosts,
        because: "it needs no server",
        which: "",
    },
    Case {
        condition: "there are several hosts and the work writes only to an SQL database",
        fits: |it| it.across_hosts && it.verifies(),
        because: "with verify_in, only one holder's transactions commit, after a failover as well",
        which: "that database",
    },
    Case {
        condition: "a second grant does no harm, since doing it twice changes nothing (charges with an idempotency key) or the target \
                    refuses old fencing tokens",
        fits: |it| it.across_hosts && it.is_database(),
        because: "you need no further server, and speed matters only at hundreds of locks a second; unlike Redis, an SQL database can \
                  refuse the writes of a second holder (verify_in)",
        which: "the one that you run",
    },
    Case {
        condition: "a second grant does no harm and you run no database",
        fits: |it| it.across_hosts,
        because: "only speed decides here",
        which: "the fastest at your work",
    },
    Case {
        condition: "a second grant does harm, as with mail (for charges see below)",
        fits: |it| it.across_hosts && it.failover_safe,
        because: "nothing else here prevents that, but with any lock a paused holder may repeat the work",
        which: "",
    },
];

/// For each kind of work.
pub(crate) fn advice(families: &[Candidate]) -> Vec<Advice> {
    CASES.iter().map(|case| one(case, families)).collect()
}

fn one(case: &Case, families: &[Candidate]) -> Advice {
    let Case { condition, fits, because, which } = *case;
    let fit: Vec<String> = families.iter().filter(|it| fits(it)).map(named).collect();
    let names = match &fit[..] {
        [before @ .., end] if !before.is_empty() => format!("{} or {end}", before.join(", ")),
        names => names.concat(),
    };
    match (names.is_empty(), which) {
        (true, _) => Advice {
            condition,
            choice: "none of those measured".to_owned(),
            because: "no backend of this report fits",
        },
        (false, "") => Advice { condition, choice: names, because },
        (false, which) => Advice { condition, choice: format!("{which} ({names})"), because },
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
    use crate::view::overview::tests::candidate;

    fn choices(backends: &[&str]) -> Vec<String> {
        let of = |backend: &&str| Candidate {
            across_hosts: *backend != "sqlite",
            failover_safe: ["sqlite", "redlock", "zookeeper3"].contains(backend),
            provided: if *backend == "redlock" { "if no clock steps forward" } else { "" },
            ..candidate(backend)
        };
        let families: Vec<_> = backends.iter().map(of).collect();
        advice(&families).into_iter().map(|it| it.choice).collect()
    }

    #[test]
    fn each_kind_of_work_has_those_that_fit() {
        let expected = [
            "SQLite",
            "that database (PostgreSQL)",
            "the one that you run (PostgreSQL or Redis/Valkey)",
            "the fastest at your work (PostgreSQL, Redis/Valkey, Redlock (if no clock steps forward) or ZooKeeper)",
            "Redlock (if no clock steps forward) or ZooKeeper",
        ];
        assert_eq!(choices(&["sqlite", "postgres", "redis", "redlock", "zookeeper3"]), expected);
    }

    #[test]
    fn what_may_grant_twice_is_not_named_where_it_must_not() {
        for unsafe_one in ["redis", "postgres"] {
            assert_eq!(choices(&[unsafe_one, "zookeeper3"])[4], "ZooKeeper");
            assert_eq!(choices(&[unsafe_one])[4], "none of those measured");
        }
    }
}
