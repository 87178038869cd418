//! `lockwell doctor`: whether a server is safe for locks.

use std::fmt::Write as _;
use std::time::Duration;

use lockwell::{Capabilities, Error, ErrorKind, Finding, LockName, Locks, Registry, Requirement, Severity};
use tokio::time::{Instant, sleep, timeout};

use crate::args::DoctorArgs;
use crate::connect::{Address, Connection, Purpose};
use crate::exit::{Failure, REFUSED, USAGE};
use crate::json::{self, ExaminationReport};
use crate::patience::Patience;
use crate::say::{Voice, rounded};

/// How long the examination of the server may take.
const TIMEOUT: Duration = Duration::from_secs(15);

/// How long the trial may wait for each lock.
const TRIAL: Duration = Duration::from_secs(10);

/// A waiter that gets the lock later than this was not notified by the server: it asked.
const NOTIFIED_WITHIN: Duration = Duration::from_millis(700);

pub(crate) async fn doctor(registry: &Registry, args: &DoctorArgs) -> Result<u8, Failure> {
    let address = Address::of(&args.server)?;
    let server = address.url.to_string();
    let mut findings = Vec::new();
    let began = Instant::now();
    match address.clone().connect(registry, Purpose::Looking, &mut Patience::none(Voice::Usual)).await {
        Err(failure) if failure.status == USAGE => return Err(failure),
        Err(failure) => findings.push(refused(
            failure,
            "connection",
            "make the server reachable as the message says, and ask again",
        )),
        Ok(connection) => {
            findings.push(Finding::good("connection", format!("made within {}", rounded(began.elapsed()))));
            examine(&connection, &mut findings).await;
            if !args.look_only {
                try_out(registry, &address, &connection, &mut findings).await;
            }
        }
    }
    let text = if args.json {
        json::pretty(&ExaminationReport::new(server, &findings))?
    } else {
        human(&server, &findings)
    };
    json::print(&text)?;
    Ok(match findings.iter().map(|finding| finding.severity).max() {
        None | Some(Severity::Good) => 0,
        Some(Severity::Doubtful) => 1,
        Some(_) => 2,
    })
}

/// Adds what the backend promises, and what it finds about the server.
async fn examine(connection: &Connection, findings: &mut Vec<Finding>) {
    let promised = connection.backend.capabilities();
    let [least, most] = [promised.min_ttl(), promised.max_ttl()].map(rounded);
    findings.push(Finding::good("lease", format!("leases may last from {least} to {most}")));
    let found = timeout(TIMEOUT, connection.backend.examine()).await;
    // A backend that knows better says so.
    let knows = matches!(&found, Ok(Ok(found)) if found.iter().any(|finding| finding.subject == "reach"));
    if !promised.promises(Requirement::AcrossHosts) && !knows {
        findings.push(Finding::good("reach", "locks exclude the processes of this host, and no others"));
    }
    match found {
        Ok(Ok(found)) => findings.extend(found),
        Ok(Err(error)) => findings.push(unknown(&error)),
        Err(_) => {
            let text = format!(
                "the server has not answered questions about its settings within {}",
                rounded(TIMEOUT)
            );
            findings.push(Finding::doubtful("examination", text, "check its load, and run this again"));
        }
    }
}

fn unknown(error: &Error) -> Finding {
    let remedy = "give the user the rights to read the settings, or check them on the server";
    Finding::doubtful("examination", format!("{error:#}"), remedy)
}

/// Hands a test lock over from one connection to another.
async fn try_out(
    registry: &Registry,
    address: &Address,
    connection: &Connection,
    findings: &mut Vec<Finding>,
) {
    if let Ok(Some(left)) = connection.backend.grace_left().await {
        let text = format!("the server grants nothing for another {}: no lock was tried", rounded(left));
        findings.push(Finding::doubtful("trial", text, "run this again then"));
        return;
    }
    let name = LockName::new(format!("lockwell doctor {:016x}", rand::random::<u64>()));
    let trial = async {
        let other =
            address.clone().connect(registry, Purpose::Looking, &mut Patience::none(Voice::Quiet)).await?;
        let (holder, waiter) = (connection.locks()?, other.locks()?);
        let took = hand_over(&holder, &waiter, &name?).await.map_err(Failure::from);
        // Locks that the trial leaves are freed here, whatever its outcome.
        let closing = [holder, waiter].map(|locks| locks.close_within(Duration::from_secs(2)));
        for closed in closing {
            drop(closed.await);
        }
        took
    };
    match trial.await {
        Ok(took) => findings.extend(judged(took, &connection.backend.capabilities())),
        Err(failure) => {
            let remedy = "without this no lock works; ask again when the server does what the message says";
            findings.push(refused(failure, "trial", remedy));
        }
    }
}

/// The finding about a failure: a right is missing, or `subject` and `remedy` say what is wrong. It has a
/// remedy of its own, since that of the failure is to ask this doctor.
fn refused(failure: Failure, subject: &'static str, remedy: &str) -> Finding {
    if failure.status == REFUSED {
        let remedy = "check user and password, and give the user the rights that the page of your backend lists (docs)";
        return Finding::bad("rights", failure.message, remedy);
    }
    Finding::bad(subject, failure.message, remedy)
}

/// How long after a release the waiter of another connection had the lock.
async fn hand_over(holder: &Locks, waiter: &Locks, name: &LockName) -> Result<Duration, Error> {
    let held = holder.lock(name).label("lockwell doctor").wait(TRIAL).await?;
    let first = held.token();
    let waiting = async {
        let granted = waiter.lock(name).label("lockwell doctor").wait(TRIAL).await?;
        Ok::<_, Error>((granted, Instant::now()))
    };
    let freeing = async {
        let end = Instant::now() + TRIAL / 4;
        while holder.inspect(name).await?.waiters == 0 && Instant::now() < end {
            sleep(Duration::from_millis(20)).await;
        }
        // By now the waiter waits for a notification, where there are any.
        sleep(Duration::from_millis(400)).await;
        let freed = Instant::now();
        held.release().await?;
        Ok(freed)
    };
    let ((granted, had), freed) = tokio::try_join!(waiting, freeing)?;
    let second = granted.token();
    granted.release().await?;
    if second <= first {
        let text = format!("the fencing token {second} came after {first}");
        return Err(Error::new(ErrorKind::Misconfigured, text));
    }
    Ok(had.saturating_duration_since(freed))
}

fn judged(took: Duration, promised: &Capabilities) -> Vec<Finding> {
    let trial = "a lock was taken, waited for, handed over and freed, and its token rose";
    let mut findings = vec![Finding::good("trial", trial)];
    let text = format!("the waiter had the lock {} after its release", rounded(took));
    findings.push(if took <= NOTIFIED_WITHIN {
        Finding::good("push", text)
    } else if promised.promises(Requirement::Push) {
        let remedy = "notifications do not arrive, so waiters ask every now and then: connect past the pooler or proxy, \
                      and let the user subscribe (docs: the page of your backend)";
        Finding::doubtful("push", text, remedy)
    } else {
        Finding::doubtful("push", text, "waiters may have to poll: is the server busy, or its disk slow?")
    });
    findings
}

fn human(server: &str, findings: &[Finding]) -> String {
    let mut text = format!("{server}\n");
    for finding in findings {
        let Finding { subject, severity, message, remedy, .. } = finding;
        let severity = severity.to_string();
        writeln!(text, "  {severity:<9} {subject:<12} {message}").unwrap_or_default();
        if !remedy.is_empty() {
            writeln!(text, "  {:<9} {:<12} -> {remedy}", "", "").unwrap_or_default();
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_slow_is_doubtful() {
        let promised = Capabilities::minimal("example");
        let worst = |took, promised: &Capabilities| {
            judged(took, promised).iter().map(|finding| finding.severity).max()
        };
        assert_eq!(worst(Duration::from_millis(3), &promised), Some(Severity::Good));
        assert_eq!(worst(Duration::from_secs(2), &promised), Some(Severity::Doubtful));
        let notified = promised.promising([Requirement::Push]);
        assert_eq!(worst(Duration::from_secs(2), &notified), Some(Severity::Doubtful));
    }

    #[test]
    fn a_refusal_does_not_refer_to_this_doctor() {
        let failure = Failure::from(Error::new(ErrorKind::Refused, "wrong password"));
        assert!(failure.text().contains("lockwell doctor"), "{failure:?}");
        let finding = refused(failure, "connection", "none");
        assert_eq!((finding.subject, &*finding.message), ("rights", "refused: wrong password"));
        assert!(finding.remedy.contains("the rights"), "{finding:?}");
    }

    #[test]
    fn for_people() {
        let findings = [Finding::good("clock", "fine"), Finding::bad("eviction", "evicts", "set it")];
        let text = human("redis://h", &findings);
        assert!(text.contains("  good      clock        fine\n"), "{text}");
        assert!(text.contains("-> set it"), "{text}");
    }
}
