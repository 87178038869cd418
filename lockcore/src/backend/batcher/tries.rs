//! Tries a batch until all its requests have answers.

use std::sync::Arc;
use std::time::Duration;

use super::entry::Entry;
use super::retry::{Retry, pause};
use super::service::{Attempt, CallOutcome, Service};
use super::shared::Shared;
use crate::backend::Backoff;
use crate::backend::batcher_sync::lock;
use crate::{Error, ErrorKind, Moment};

/// How often a request that collided with others is tried again at most. A deadlock that occurs twenty times
/// counts as a failure.
const TRIES: u32 = 20;

/// The first and the longest pause between two tries of a call.
const PAUSE: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(256));

/// Tries a batch until all its requests have answers, or no caller waits for them any more.
pub(super) async fn run<S: Service>(shared: &Shared<S>, batch: Vec<Arc<Entry<S>>>) {
    let mut parts = run_part(shared, batch).await;
    while let Some(part) = parts.pop() {
        parts.extend(run_part(shared, part).await);
    }
}

/// Tries a batch, or a part of a batch that is tried separately, in the same way. Returns parts that must be
/// tried separately.
async fn run_part<S: Service>(shared: &Shared<S>, mut open: Vec<Arc<Entry<S>>>) -> Vec<Vec<Arc<Entry<S>>>> {
    let service = &shared.service;
    let mut backoff = Backoff::new(PAUSE.0, PAUSE.1);
    let (began, mut tries) = (shared.clock.now(), 0);
    loop {
        let Some(first) = open.first() else { return Vec::new() };
        let key = first.key.clone();
        let began = open.iter().filter_map(|entry| Some(entry.retry()?.began)).min().unwrap_or(began);
        let until = open.iter().map(|entry| entry.deadline).max().unwrap_or(Moment::NEVER);
        let attempt = Attempt { began, until };
        // A service should return by then. One that does not must not keep the later requests of its key.
        let Some(prepared) = shared.clock.timeout_at(until, service.prepare(&key, attempt)).await else {
            for entry in &open {
                entry.give_up();
            }
            return Vec::new();
        };
        // Nothing is sent, or sent again, for a caller that has left: its release may be on its way already.
        open.retain(|entry| is_wanted(shared, entry));
        match prepared {
            Ok(()) if open.is_empty() => return Vec::new(),
            Ok(()) => (),
            Err(error) if error.is_retryable() => {
                for entry in &open {
                    entry.note(error.duplicate(), false);
                }
                backoff.pause_by(&shared.clock).await;
                continue;
            }
            Err(error) => {
                for entry in &open {
                    entry.settle(Err(error.duplicate()));
                }
                return Vec::new();
            }
        }
        let requests: Vec<_> = open.iter().map(|entry| &entry.request).collect();
        for entry in &open {
            entry.note_sent();
        }
        let sent = shared.clock.now();
        let Some(outcomes) = shared.clock.timeout_at(until, service.call(&key, &requests, attempt)).await
        else {
            for entry in &open {
                entry.give_up();
            }
            return Vec::new();
        };
        tries += 1;
        let size = open.len();
        if outcomes.iter().any(|outcome| !matches!(outcome, CallOutcome::Unknown(_))) {
            lock(&shared.queues).note_answer(&key, sent, shared.clock.now());
        }
        let mut again = Vec::new();
        let mut unknown = Vec::new();
        let mut blocked = Vec::new();
        let mut refused = Vec::new();
        let missing =
            || CallOutcome::Failed(Error::new(ErrorKind::Internal, "the backend has not answered to all"));
        let outcomes = outcomes.into_iter().chain(std::iter::repeat_with(missing));
        for (entry, outcome) in open.into_iter().zip(outcomes) {
            match outcome {
                CallOutcome::Answered(answer) => entry.settle(Ok(answer)),
                CallOutcome::Refused(error) if size > 1 => {
                    // The call may have been executed in part.
                    entry.note(error, true);
                    refused.push(entry);
                }
                CallOutcome::Failed(error) | CallOutcome::Refused(error) => entry.settle(Err(error)),
                CallOutcome::Again(error) if tries >= TRIES => entry.settle(Err(error)),
                CallOutcome::Again(error) | CallOutcome::Unavailable(error) => {
                    entry.note(error, false);
                    again.push(entry);
                }
                CallOutcome::Unknown(error) => {
                    entry.note(error, true);
                    service.note_in_doubt(&entry.request);
                    unknown.push(entry);
                }
                CallOutcome::Blocked => blocked.push(entry),
            }
        }
        put_back(shared, &key, &unknown, sent, size);
        if !blocked.is_empty() || !refused.is_empty() {
            let mut parts = apart(service, blocked);
            parts.extend([refused.split_off(refused.len() / 2), refused, again]);
            parts.retain(|part| !part.is_empty());
            return parts;
        }
        if again.is_empty() {
            return Vec::new();
        }
        open = again;
        backoff.pause_by(&shared.clock).await;
    }
}

/// Puts requests whose outcome is unknown into the queue again. They were sent then in a call of this size.
fn put_back<S: Service>(
    shared: &Shared<S>,
    key: &S::Key,
    entries: &[Arc<Entry<S>>],
    sent: Moment,
    size: usize,
) {
    let tries = entries.iter().filter_map(|entry| Some(entry.retry()?.tries)).max().unwrap_or(0);
    // One pause for all of them, so that they share calls again.
    let not_before = shared.clock.now().after(pause(tries, rand::random()));
    {
        let mut queues = lock(&shared.queues);
        let answered = queues.answered(key);
        // The last one first, since each goes to the front.
        for entry in entries.iter().rev() {
            let next = Retry::after(entry.retry(), sent, size, answered, not_before);
            *crate::system::lock(&entry.retry) = Some(next);
            queues.put_back(entry);
        }
    }
}

fn is_wanted<S: Service>(shared: &Shared<S>, entry: &Entry<S>) -> bool {
    if !shared.service.is_wanted(&entry.request) {
        // What was sent before may have been carried out.
        let kind = if entry.is_in_doubt() { ErrorKind::UnknownOutcome } else { ErrorKind::Cancelled };
        entry.settle(Err(Error::new(kind, "the claim was cancelled before its request was sent")));
        return false;
    }
    !shared.clock.has_passed(entry.deadline) && !entry.has_left()
}

/// Groups the requests that want the same resource; the first to try comes last.
fn apart<S: Service>(service: &S, entries: Vec<Arc<Entry<S>>>) -> Vec<Vec<Arc<Entry<S>>>> {
    let mut parts: Vec<Vec<Arc<Entry<S>>>> = Vec::new();
    for entry in entries {
        let same = |part: &&mut Vec<Arc<Entry<S>>>| service.is_about_one(&part[0].request, &entry.request);
        match parts.iter_mut().find(same) {
            Some(part) => part.push(entry),
            None => parts.push(vec![entry]),
        }
    }
    parts.reverse();
    parts
}
