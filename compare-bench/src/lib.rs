//! Measures the lock backends of lockwell on the same work, beside raw statements on the same server.
//!
//! [`run`] is the whole program, so that another one can be made of it in one line.

mod args;
mod diff;
mod document;
mod error;
mod figures;
mod measure;
mod plan;
mod record;
mod render;
mod run;
mod stats;
mod target;
mod view;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Args, Command, RunArgs};
use crate::error::{Error, Result};
use crate::measure::{contrast, peer, worker, workload};
use crate::record::machine::PROFILE;
use crate::target::kind::Kind;

/// The status after a lock did not exclude.
const VIOLATION: u8 = 2;

/// The whole program: it reads the arguments of this process, does what they say, and returns the exit
/// status.
///
/// It starts the same program again for the processes that contend for locks, with arguments of their own. So
/// it must be the first thing that `main` does, on a runtime with several threads.
pub async fn run() -> ExitCode {
    let mut words = std::env::args().skip(1);
    match words.next().as_deref() {
        Some(worker::ARGUMENT) => return worker::main(words.next().unwrap_or_default()).await,
        Some(faults::worker::ARGUMENT) => return faults::worker::main().await,
        Some(peer::CONTRAST) => return contrast::main(&words.next().unwrap_or_default()).await,
        _ => {}
    }
    let args = Args::parse();
    let done = match args.command {
        Some(Command::Figures(args)) => figures::run(&args).map(|()| ExitCode::SUCCESS),
        Some(Command::Render(args)) => render::run(&args).map(|()| ExitCode::SUCCESS),
        Some(Command::Diff(args)) => {
            diff::run(&args).map(|is_well| if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Some(Command::Faults(args)) => faults::run(&args).await.map_err(Error::from),
        None if args.run.list => {
            list();
            Ok(ExitCode::SUCCESS)
        }
        None => measured(args.run).await,
    };
    done.unwrap_or_else(|error| {
        eprintln!("compare-bench: {error}");
        ExitCode::FAILURE
    })
}

/// Whether this command line, which begins with the name of the program, is understood; the error says why
/// not. For the commands in documentation.
pub fn understands(words: impl IntoIterator<Item = String>) -> std::result::Result<(), String> {
    Args::try_parse_from(words).map(drop).map_err(|error| error.to_string())
}

/// The comparison, until its end or until it is interrupted.
async fn measured(args: RunArgs) -> Result<ExitCode> {
    let args = match &args.resume {
        Some(file) => {
            let before = run::arguments(file.as_deref())?;
            args.resumed(before).map_err(|error| Error::failed(error.to_string()))?
        }
        None => args,
    };
    let _slow = target::slow_disk::ensure(args.sync_delay.into())?;
    if cfg!(debug_assertions) {
        eprintln!("compare-bench: {}", document::DEBUG);
    }
    if let Some(left_out) = args.left_out(PROFILE) {
        eprintln!("compare-bench: {left_out}");
    }
    // On a thread of the runtime, where an application's tasks are: the main thread is woken in another way.
    let urls = args.url.clone();
    let mut comparison = tokio::spawn(async move { compare(&args).await });
    tokio::select! {
        done = &mut comparison => return done.map_err(Error::from).flatten(),
        _ = tokio::signal::ctrl_c() => {}
    }
    // Its servers and their folders are dropped with it. Every case that is finished is in the file.
    eprintln!("compare-bench: interrupted; --resume goes on where it was");
    comparison.abort();
    drop(tokio::time::timeout(run::TIDY, comparison).await);
    run::tidy(&urls).await;
    Ok(ExitCode::from(130))
}

async fn compare(args: &RunArgs) -> Result<ExitCode> {
    let (report, file) = run::run(args).await?;
    document::terminal::print(&report);
    let path = file.path().display();
    println!("all figures: {path}");
    let command = if option_env!("LOCKWELL_COMPARE_PROFILE").is_some() {
        "cargo xtask compare"
    } else {
        "compare-bench"
    };
    println!("`{command} render {path}` makes a report of them");
    Ok(match (&report.violation, report.failures.is_empty() && !report.results.is_empty()) {
        (Some(_), _) => ExitCode::from(VIOLATION),
        (None, true) => ExitCode::SUCCESS,
        (None, false) => ExitCode::FAILURE,
    })
}

fn list() {
    println!("workloads:");
    for workload in workload::ALL {
        let about = workload.about();
        let when = if about.only_in_full { " (not with --quick)" } else { "" };
        println!("  {:<12} {}{when}", about.name, about.text);
    }
    println!("backends:");
    for kind in Kind::all() {
        println!("  {:<12} {}", kind.name(), kind.missing().unwrap_or_else(|| "ready".to_owned()));
    }
    println!("other libraries, with --peers:");
    for library in peer::ALL.iter().filter(|library| !library.is_contrast()) {
        println!("  {:<16} for {}", library.name, library.schemes.join(", "));
    }
    println!("common but faulty recipes, with --contrast:");
    for library in peer::ALL.iter().filter(|library| library.is_contrast()) {
        println!("  {:<16} for {}", library.name, library.schemes.join(", "));
    }
}
