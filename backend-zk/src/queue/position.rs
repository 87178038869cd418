//! Computes from the list of a lock's nodes which node holds the lock, and for which node each waiter waits.
//! It does no I/O.

use crate::queue::child::{Child, Kind};

/// The position of a claim in the queue.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Position {
    /// The claim holds the lock: it is the first, or one of several holders.
    First,
    Waiting(Waiting),
    /// An older node has the same owner id: an earlier request of the claim created it.
    Behind(Child),
    /// The node does not exist.
    Gone,
}

/// The node that a claim waits for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    /// The node to watch: its deletion or a change of its data comes before the turn of the claim. `None`:
    /// any node before the claim can be that node.
    pub(crate) watch: Option<String>,
    /// The node directly before the claim, if it is not the watched one. After the deletion of the watched
    /// node it is probably the only one left.
    pub(crate) last: Option<Child>,
    /// The number of nodes before the claim.
    pub(crate) ahead: usize,
    /// How the first node holds the lock.
    pub(crate) held: Kind,
}

/// The position of the node `name` in the queue.
///
/// Each claim watches as few nodes as possible. A reader waits for the last node before it that is no reader's. A mutex waits
/// for the second node before it, and then for the node directly before it. While the second node exists, it
/// cannot be the claim's turn. When it is deleted, there is time to list the queue and to learn that no other
/// node is left. So when the last node is deleted, no request is needed. The first waiting permit waits for
/// any of the holders. Each other waiting permit waits until the claim before it leaves, or writes that it
/// holds a permit. So a release wakes two mutexes, or two permits one after the other, however many wait.
///
/// Two kinds never hold the lock together: a claim holds it only if no node of another kind is before it, and
/// nodes are added at the end. So none comes before it later, and whoever comes later waits for it.
pub(crate) fn position(queue: &[Child], name: &str) -> Position {
    let Some(at) = queue.iter().position(|child| child.name == name) else { return Position::Gone };
    let (me, before) = (&queue[at], &queue[..at]);
    if let Some(older) = before.iter().find(|child| me.owner.is_some() && child.owner == me.owner) {
        return Position::Behind(older.clone());
    }
    let mut first = false;
    let mut last = None;
    let watch = match me.kind {
        Kind::Exclusive => match before {
            [.., last_but_one, nearest] => {
                last = Some(nearest.clone());
                Some(last_but_one)
            }
            _ => before.last(),
        },
        Kind::Shared => before.iter().rfind(|child| child.kind != Kind::Shared),
        Kind::Permit(limit) => {
            let alike = before.iter().all(|child| child.kind == me.kind);
            first = alike && before.len() == limit as usize;
            before.last().filter(|_| !alike || before.len() > limit as usize)
        }
    };
    if watch.is_none() && !first {
        return Position::First;
    }
    let watch = watch.map(|child| child.name.clone());
    Position::Waiting(Waiting { watch, last, ahead: before.len(), held: queue[0].kind })
}

/// How many nodes, from the first on, hold the lock.
pub(crate) fn holders(queue: &[Child]) -> usize {
    let Some(first) = queue.first() else { return 0 };
    match first.kind {
        Kind::Exclusive => 1,
        Kind::Shared => queue.iter().take_while(|child| child.kind == Kind::Shared).count(),
        Kind::Permit(limit) => {
            queue.iter().take_while(|child| child.kind == first.kind).take(limit as usize).count()
        }
    }
}

#[cfg(test)]
mod tests {
    use lockwell_core::OwnerId;

    use super::*;
    use crate::queue::child::{Form, prefix};

    /// A queue from letters: `w`riter, `r`eader, `2` and `3` for permits.
    fn queue(letters: &str) -> Vec<Child> {
        let names = letters.chars().enumerate().map(|(at, letter)| {
            let kind = match letter {
                'w' => Kind::Exclusive,
                'r' => Kind::Shared,
                digit => Kind::Permit(digit.to_digit(10).unwrap()),
            };
            format!("{}{at:010}", prefix(OwnerId::from_u128(at as u128), kind, Form::Mutex))
        });
        Child::queue(names.collect())
    }

    /// The node for which the node at `at` waits.
    fn watches(letters: &str, at: usize) -> Vec<usize> {
        let queue = queue(letters);
        match position(&queue, &queue[at].name) {
            Position::First => vec![],
            Position::Waiting(Waiting { watch, last, ahead, held }) => {
                assert_eq!((ahead, held), (at, queue[0].kind));
                assert!(last.is_none_or(|last| last == queue[at - 1] && watch.as_ref() != Some(&last.name)));
                let find = |name| queue.iter().position(|child| child.name == name).unwrap();
                watch.map_or((0..at).collect(), |name| vec![find(name)])
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn everybody_waits_for_the_fewest() {
        assert!(watches("w", 0).is_empty());
        assert_eq!(watches("ww", 1), [0]);
        assert_eq!(watches("www", 2), [0]);
        assert_eq!(watches("wwwww", 4), [2]);
        assert!(watches("rrr", 2).is_empty());
        assert_eq!(watches("rrw", 2), [0]);
        assert_eq!(watches("rw", 1), [0]);
        assert_eq!(watches("wrwr", 3), [2]);
        assert_eq!(watches("wrr", 2), [0]);
        assert!(watches("22", 1).is_empty());
        assert_eq!(watches("222", 2), [0, 1]);
        assert_eq!(watches("22222", 3), [2]);
        assert_eq!(watches("22222", 4), [3]);
    }

    #[test]
    fn holders_are_counted() {
        for (letters, count) in [("", 0), ("ww", 1), ("rrwr", 2), ("wr", 1), ("222", 2), ("3", 1), ("2w2", 1)]
        {
            assert_eq!(holders(&queue(letters)), count, "{letters}");
        }
    }

    /// In each queue of up to six nodes of three kinds, whatever has left: those that hold the lock are the first
    /// ones, and of one kind.
    #[test]
    fn two_kinds_never_hold_the_lock() {
        for number in 0..4_u32.pow(6) {
            let letters: String =
                (0..6).map(|at| ['w', 'r', '2', '3'][number as usize >> (2 * at) & 3]).collect();
            for left in 0..1_u32 << 6 {
                let queue: Vec<_> = queue(&letters)
                    .into_iter()
                    .enumerate()
                    .filter(|(at, _)| left >> at & 1 == 0)
                    .map(|(_, c)| c)
                    .collect();
                let holds = |child: &Child| position(&queue, &child.name) == Position::First;
                let held = queue.iter().take_while(|child| holds(child)).count();
                assert_eq!(held, holders(&queue), "{letters} {left:b}");
                assert_eq!(queue.iter().filter(|child| holds(child)).count(), held, "{letters} {left:b}");
                assert!(
                    queue[..held].iter().all(|child| child.kind.mode().is_same_kind(queue[0].kind.mode())),
                    "{letters} {left:b}"
                );
            }
        }
    }

    /// A claim behind a node of another kind waits for as few nodes as others do.
    #[test]
    fn another_kind_is_waited_for_in_line() {
        for (letters, at, obstacle) in [
            ("2w", 1, 0),
            ("23", 1, 0),
            ("223", 2, 1),
            ("2233", 3, 2),
            ("2w2", 2, 1),
            ("232", 2, 1),
            ("2w22", 3, 2),
            ("22w", 2, 0),
            ("22www", 4, 2),
            ("r2r", 2, 1),
            ("2rr", 2, 0),
            ("rr2rr", 4, 2),
            ("w2w", 2, 0),
            ("wr2r", 3, 2),
        ] {
            assert_eq!(watches(letters, at), [obstacle], "{letters}");
        }
    }

    #[test]
    fn an_older_node_of_the_same_owner_is_found() {
        let name =
            |at: u32| format!("{}{at:010}", prefix(OwnerId::from_u128(1), Kind::Exclusive, Form::Mutex));
        let queue = Child::queue(vec![name(3), name(5)]);
        assert!(matches!(position(&queue, &name(5)), Position::Behind(child) if child.sequence == 3));
        assert_eq!(position(&queue, &name(3)), Position::First);
        assert_eq!(position(&queue, &name(4)), Position::Gone);
    }
}
