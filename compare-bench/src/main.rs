//! Measures the lock backends of lockwell on the same work, beside raw statements on the same server.

mod args;
mod cycles;
mod error;
mod floor;
mod history;
mod machine;
mod peer;
mod plan;
mod progress;
mod ratio;
mod report;
mod run;
mod server;
mod stats;
mod table;
mod target;
mod worker;
mod workload;

use std::process::ExitCode;

use clap::Parser;

use crate::args::Args;
use crate::error::Result;
use crate::target::Kind;

/// The status after a lock did not exclude.
const VIOLATION: u8 = 2;

#[tokio::main]
async fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    if words.next().as_deref() == Some(worker::ARGUMENT) {
        return worker::main(words.next().unwrap_or_default()).await;
    }
    let args = Args::parse();
    if args.list {
        list();
        return ExitCode::SUCCESS;
    }
    if cfg!(debug_assertions) {
        eprintln!("compare-bench: {}", table::DEBUG);
    }
    // On a thread of the runtime, where an application's tasks are: the main thread is woken in another way.
    let comparison = tokio::spawn(async move { compare(&args).await });
    tokio::select! {
        done = comparison => match done.map_err(error::Error::from).flatten() {
            Ok(status) => status,
            Err(error) => {
                eprintln!("compare-bench: {error}");
                ExitCode::FAILURE
            }
        },
        // Returning drops the servers and their folders.
        _ = tokio::signal::ctrl_c() => ExitCode::from(130),
    }
}

async fn compare(args: &Args) -> Result<ExitCode> {
    let report = run::run(args).await?;
    report.write(&args.json)?;
    table::print(&report);
    println!("all figures: {}", args.json.display());
    Ok(match (&report.violation, report.failures.is_empty() && !report.results.is_empty()) {
        (Some(_), _) => ExitCode::from(VIOLATION),
        (None, true) => ExitCode::SUCCESS,
        (None, false) => ExitCode::FAILURE,
    })
}

fn list() {
    println!("workloads:");
    for workload in workload::ALL {
        let when = if workload.only_in_full() { " (not with --quick)" } else { "" };
        println!("  {:<12} {}{when}", workload.name(), workload.about());
    }
    println!("backends:");
    for kind in Kind::ALL {
        println!("  {:<12} {}", kind.name(), kind.missing().unwrap_or_else(|| "ready".to_owned()));
    }
    println!("other libraries, with --peers:");
    for library in peer::ALL {
        println!("  {:<16} for {}", library.name, library.schemes.join(", "));
    }
}
