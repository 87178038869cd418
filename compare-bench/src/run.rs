//! The run: one backend after the other, so that none pays for another's server.

use std::time::{Duration, Instant};

use crate::args::Args;
use crate::error::{Error, Result};
use crate::floor::Floor;
use crate::peer::{self, Peer};
use crate::plan::Plan;
use crate::progress::Progress;
use crate::report::{Backend, Failure, Missing, Report};
use crate::server::Site;
use crate::target::{Choice, data_folder, given};
use crate::workload::{Bench, Workload};

/// What a server is given to start. Only the progress bar uses it.
const START: Duration = Duration::from_secs(4);

/// Measures everything that was asked for. Ends early if a lock does not exclude.
pub(crate) async fn run(args: &Args) -> Result<Report> {
    let began = Instant::now();
    let (plan, workloads) = (args.plan(), args.workloads());
    let mut report = Report::new(plan.mode);
    let choices = choices(args, &mut report)?;
    let each = START + workloads.iter().map(|workload| workload.time(&plan)).sum::<Duration>();
    let progress = Progress::new(each * u32::try_from(choices.len()).unwrap_or(u32::MAX));
    for missing in &report.missing {
        progress.say(&format!("{} is left out: {}", missing.backend, missing.reason));
    }
    let peers = if args.peers { peers(&choices, &progress, &mut report).await } else { Vec::new() };
    for choice in &choices {
        let peers = peers.iter().filter(|peer| peer.serves(choice.scheme())).cloned().collect();
        match measure(choice, peers, plan, &workloads, &progress, &mut report).await {
            Ok(()) => {}
            Err(Error::Violation(_)) => break,
            Err(error) => {
                progress.say(&format!("{} is left out: {error}", choice.name()));
                let reason = format!("{error:#}");
                report.missing.push(Missing { backend: choice.name().to_owned(), reason });
                progress.spent(each);
            }
        }
    }
    progress.finish();
    report.took(began.elapsed());
    Ok(report)
}

fn choices(args: &Args, report: &mut Report) -> Result<Vec<Choice>> {
    if !args.url.is_empty() {
        return given(&args.url);
    }
    let (folder, delay) = (data_folder(args.tmpfs)?, args.delay.into());
    let site = Site { folder, durability: args.durability, delay };
    let mut choices = Vec::new();
    for kind in args.kinds() {
        match kind.missing() {
            None => choices.push(Choice::Own(kind, site.clone())),
            Some(reason) => report.missing.push(Missing { backend: kind.name().to_owned(), reason }),
        }
    }
    Ok(choices)
}

/// Builds the other libraries that there are for these backends.
async fn peers(choices: &[Choice], progress: &Progress, report: &mut Report) -> Vec<Peer> {
    let mut peers = Vec::new();
    for library in &peer::ALL {
        if !choices.iter().any(|choice| library.serves(choice.scheme())) {
            continue;
        }
        progress.stage(&format!("building {}", library.name));
        match library.build().await {
            Ok(peer) => peers.push(peer),
            Err(reason) => {
                progress.say(&format!("{} is left out: {reason}", library.name));
                report.missing.push(Missing { backend: library.name.to_owned(), reason });
            }
        }
    }
    peers
}

/// One backend. An error means that it could not be measured at all; a workload that fails is noted in the report.
async fn measure(
    choice: &Choice,
    peers: Vec<Peer>,
    plan: Plan,
    workloads: &[&'static dyn Workload],
    progress: &Progress,
    report: &mut Report,
) -> Result<()> {
    progress.stage(&format!("{}: starting", choice.name()));
    let target = choice.start().await?;
    let locks = lockwell::connect(&target.url).await?;
    let mut floor = Floor::connect(&target.parsed).await?;
    let server = floor.server().await?;
    report.backends.push(Backend {
        name: target.name.clone(),
        address: target.parsed.to_string(),
        version: server.version,
        settings: server.settings.into_iter().collect(),
        storage: target.storage.clone(),
        floor: floor.what(),
    });
    let run = format!("{}-{:x}", std::process::id(), crate::history::nanos());
    let mut bench = Bench { target, locks, floor, peers, plan, progress: progress.clone(), run };
    progress.spent(START);
    for workload in workloads {
        progress.stage(&format!("{}: {}", choice.name(), workload.name()));
        let error = match workload.run(&mut bench).await {
            Ok(measurements) => {
                report.results.extend(measurements);
                continue;
            }
            Err(error) => error,
        };
        let failure = Failure {
            backend: choice.name().to_owned(),
            workload: workload.name(),
            reason: error.to_string(),
        };
        progress.say(&format!("{}: {} FAILED: {error}", failure.backend, failure.workload));
        if matches!(error, Error::Violation(_)) {
            report.violation = Some(failure);
            return Err(error);
        }
        report.failures.push(failure);
    }
    let Bench { target, locks, floor, .. } = bench;
    locks.close().await?;
    floor.finish().await?;
    // Blocks for a moment: the server is killed and its folder removed.
    drop(target);
    Ok(())
}
