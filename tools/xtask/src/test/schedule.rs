//! Which programs run side by side.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::thread;

use super::programs::Class;

/// How many programs whose tests wait run at a time, beside one that computes. Each of them runs several
/// tests at a time: with three such programs, two processors are busy all the time, and what is to happen
/// within a lease comes too late.
const WAITING: usize = 2;

/// Does all jobs, and returns what came of them in the order in which they ended.
pub(crate) fn side_by_side<J: Send, T: Send>(
    jobs: impl IntoIterator<Item = (Class, J)>,
    run: impl Fn(J) -> T + Sync,
) -> Vec<T> {
    let (alone, together): (Vec<_>, Vec<_>) = jobs.into_iter().partition(|(class, _)| *class == Class::Alone);
    let (waiting, computing): (VecDeque<_>, VecDeque<_>) =
        together.into_iter().partition(|(class, _)| *class == Class::Waiting);
    let (waiting, computing) = (Mutex::new(waiting), Mutex::new(computing));
    let next = |queue: &Mutex<VecDeque<(Class, J)>>| {
        queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front().map(|(_, job)| job)
    };
    let done = Mutex::new(Vec::new());
    let finish = |job| {
        let value = run(job);
        done.lock().unwrap_or_else(PoisonError::into_inner).push(value);
    };
    thread::scope(|scope| {
        for _ in 0..WAITING {
            scope.spawn(|| {
                while let Some(job) = next(&waiting) {
                    finish(job);
                }
            });
        }
        while let Some(job) = next(&computing) {
            finish(job);
        }
    });
    for (_, job) in alone {
        finish(job);
    }
    done.into_inner().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    #[test]
    fn one_computes_and_some_wait() {
        let running = [AtomicUsize::new(0), AtomicUsize::new(0)];
        let most = [AtomicUsize::new(0), AtomicUsize::new(0)];
        let jobs = (0..20).map(|at| (if at % 2 == 0 { Class::Waiting } else { Class::Computing }, at));
        let jobs = [(Class::Alone, 20)].into_iter().chain(jobs);
        let mut done = side_by_side(jobs, |at: usize| {
            let class = at % 2;
            let others = running.iter().map(|count| count.load(Ordering::SeqCst)).sum::<usize>();
            assert!(at != 20 || others == 0, "it runs alone");
            most[class].fetch_max(running[class].fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(2));
            running[class].fetch_sub(1, Ordering::SeqCst);
            at
        });
        done.sort_unstable();
        assert_eq!(done, (0..=20).collect::<Vec<_>>());
        assert!(most[0].load(Ordering::SeqCst) <= WAITING);
        assert_eq!(most[1].load(Ordering::SeqCst), 1);
    }
}
