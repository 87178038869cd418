//! The suite bites: for every case there is a lock with one defect that the case finds.
//!
//! `cargo test -p lockwell-conformance --test bites [-- FILTER]`; names are
//! `DEFECT::is_found_by::CASE`. Where the locks need a network, another process or a purge, which the memory
//! backend does not have, the same lock without a defect must pass: `right::CASE`.

mod broken_lock;
mod defect;
mod flawed_lock;
mod forgetful_lock;
mod network;
mod processes;
mod proofs;
mod recording_lock;
mod remote_lock;
mod session_lock;
mod weak_lock;
mod workshop;

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lockwell_conformance::{Case, Harness, Missing, Need, Suite, Target, cases, runtime};

use broken_lock::Broken;
use defect::Defect;
use flawed_lock::Flawed;
use processes::Served;
use proofs::{BROKEN, FLAWED, FORGETFUL, RECORDING, REMOTE, SERVED, SESSION, UNPROVEN, WEAK};
use recording_lock::Recording;
use workshop::{Laboratory, Periods, Purged, Sessions, Workshop};

/// How often a case may miss a defect that shows by chance.
const ATTEMPTS: usize = 3;
/// The name of threads whose panics are expected.
const EXPECTED: &str = "expected-to-fail";

type Make = Box<dyn Fn() -> Arc<dyn Harness> + Send>;

/// A defect, and a case that finds it.
struct Proof {
    defect: String,
    make: Make,
    case: &'static str,
    words: &'static str,
}

fn main() -> ExitCode {
    let suite = Suite::new(processes::connect).check("every_case_is_proven_or_listed", every_case);
    keep_expected_panics_quiet();
    let suite = proofs().into_iter().fold(suite, |suite, proof| {
        let name = format!("{}::is_found_by::{}", proof.defect, proof.case);
        suite.check(name, move || found(&proof))
    });
    suite.targets(right()).run().exit_code()
}

/// Locks without a defect, for the cases with needs that the memory backend does not meet.
fn right() -> [Target; 4] {
    fn target<H: Harness>(make: fn(Defect) -> H, needs: &'static [Need]) -> Target {
        let start =
            move || std::future::ready(Ok::<_, Missing>(Arc::new(make(Defect::None)) as Arc<dyn Harness>));
        let meets = move |case: &Case| needs.iter().any(|need| case.needs.contains(need));
        Target::new("right", make(Defect::None).offers(), start).one_each().only(meets)
    }
    [
        target(Served::start, &[Need::Process]),
        target(Purged::new, &[Need::Purge]),
        target(Periods::new, &[Need::Grace]),
        target(Laboratory::new, &[Need::Link, Need::Server]),
    ]
}

fn proofs() -> Vec<Proof> {
    // Those with other processes wait for the time of the machine, so they begin first.
    let tables = [
        table(SERVED, Served::start),
        table(BROKEN, |defect| Workshop::new(|controls| Arc::new(Broken::new(defect, controls)))),
        table(FLAWED, |defect| Workshop::new(|controls| Arc::new(Flawed::new(defect, controls)))),
        table(WEAK, Purged::new),
        table(RECORDING, |defect| Workshop::new(|controls| Arc::new(Recording::new(defect, controls)))),
        table(FORGETFUL, Periods::new),
        table(SESSION, Sessions::new),
        table(REMOTE, Laboratory::new),
    ];
    tables.into_iter().flatten().collect()
}

fn table<H: Harness>(rows: &[(Defect, &'static str, &'static str)], make: fn(Defect) -> H) -> Vec<Proof> {
    let proof = |&(defect, case, words): &(Defect, &'static str, &'static str)| {
        let make: Make = Box::new(move || Arc::new(make(defect)) as Arc<dyn Harness>);
        Proof { defect: format!("{defect:?}"), make, case, words }
    };
    rows.iter().map(proof).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Every case is in one of the two lists, and both have none that does not exist.
fn every_case() -> Result<(), String> {
    let all: BTreeSet<&str> = cases().iter().map(|case| case.name).collect();
    let proofs = proofs();
    let proven: BTreeSet<&str> = proofs.iter().map(|proof| proof.case).collect();
    let listed: BTreeSet<&str> = UNPROVEN.iter().map(|(case, _)| *case).collect();
    eprintln!("{} of {} cases find a defect; these do not:", proven.len(), all.len());
    for (case, why) in UNPROVEN {
        eprintln!("  {case}: {why}");
    }
    let wrong = [
        (
            "no defect is known that they find",
            all.iter().filter(|case| !proven.contains(*case) && !listed.contains(*case)).collect::<Vec<_>>(),
        ),
        ("they find a defect, and are listed as if not", proven.intersection(&listed).collect()),
        (
            "any panic would do as a proof",
            proofs.iter().filter(|proof| proof.words.is_empty()).map(|proof| &proof.case).collect(),
        ),
        ("there are no such cases", proven.union(&listed).filter(|case| !all.contains(*case)).collect()),
    ];
    let wrong: Vec<_> = wrong.iter().filter(|(_, cases)| !cases.is_empty()).collect();
    if wrong.is_empty() { Ok(()) } else { Err(format!("{wrong:#?}")) }
}

fn named(name: &str) -> Result<Case, String> {
    Ok(*cases().iter().find(|case| case.name == name).ok_or("there is no such case")?)
}

/// Runs a case that must fail, and must say why.
fn found(proof: &Proof) -> Result<(), String> {
    let case = named(proof.case)?;
    let mut why = String::new();
    for _ in 0..ATTEMPTS {
        why = match complaint(case, (proof.make)())? {
            Some(said) if said.contains(proof.words) => return Ok(()),
            Some(said) => format!("it failed for another reason: {said}"),
            None => format!("it passed, at last of {ATTEMPTS} times"),
        };
    }
    Err(why)
}

/// Runs a case, and returns what it says if it fails.
fn complaint(case: Case, harness: Arc<dyn Harness>) -> Result<Option<String>, String> {
    let played = std::thread::Builder::new().name(EXPECTED.into()).spawn(move || {
        let runtime = runtime(&*harness, EXPECTED).expect("a runtime");
        runtime.block_on(case.run(harness));
        runtime.shutdown_timeout(Duration::from_secs(1));
    });
    match played.map_err(|error| format!("a thread: {error}"))?.join() {
        Ok(()) => Ok(None),
        Err(panic) => Ok(Some(match (panic.downcast_ref::<String>(), panic.downcast_ref::<&str>()) {
            (Some(text), _) => text.clone(),
            (None, Some(text)) => (*text).to_owned(),
            (None, None) => String::new(),
        })),
    }
}

/// Keeps the panics of cases that must fail out of the output.
fn keep_expected_panics_quiet() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if std::thread::current().name() != Some(EXPECTED) {
            usual(panic);
        }
    }));
}
