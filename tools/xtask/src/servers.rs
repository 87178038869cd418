//! `cargo xtask servers`: the releases of servers that the tests use, and servers to experiment with.

use std::process::ExitCode;

use testbed::Release;

use crate::play;
use crate::shell::Result;

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Options {
    /// Start these servers, print their addresses, and stop them on Ctrl-C: redis, redlock, sentinel,
    /// cluster, postgres, mariadb, zookeeper, zookeeper3, etcd, etcd3, or a release such as redis8. Their
    /// data is deleted when they stop. Without names, list the releases.
    #[arg(value_name = "NAME")]
    start: Vec<String>,

    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Download releases that the system does not install: those that are named, or all. They are unpacked in
    /// the folder `LOCKWELL_SERVERS_FOLDER`, or in `servers` in the target folder. Nothing is installed.
    Fetch {
        #[arg(value_name = "NAME")]
        names: Vec<String>,
    },
}

pub(crate) fn run(options: Options) -> Result<ExitCode> {
    match options.what {
        None if !options.start.is_empty() => play::run(&options.start),
        None => {
            for release in Release::all() {
                match release.version() {
                    Ok(version) => println!("{:14} {version}", release.name()),
                    Err(error) => println!("{:14} {error}", release.name()),
                }
            }
            Ok(ExitCode::SUCCESS)
        }
        Some(What::Fetch { names }) => {
            let known: Vec<_> = Release::all().iter().map(Release::name).collect();
            if let Some(name) = names.iter().find(|name| !known.contains(&name.as_str())) {
                return Err(format!("there is no {name}, but {}", known.join(", ")));
            }
            let chosen =
                |release: &&Release| names.is_empty() || names.iter().any(|name| name == release.name());
            let fetched = Release::all().iter().filter(|release| release.is_fetched());
            let chosen: Vec<_> = fetched.filter(chosen).collect();
            for remark in fetch(chosen.iter().copied()) {
                println!("{remark}");
            }
            let all_there = chosen.iter().all(|release| release.version().is_ok());
            Ok(if all_there { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
    }
}

/// Downloads these releases and prints the results. Returns remarks for the end: releases that cannot be
/// downloaded, and versions that the documentation does not name.
pub(crate) fn fetch<'a>(releases: impl IntoIterator<Item = &'a Release>) -> Vec<String> {
    let mut remarks = Vec::new();
    for release in releases {
        match release.fetch() {
            Ok(version) => {
                eprintln!("xtask: {} is {version}", release.name());
                remarks.extend(release.surprise(&version));
            }
            Err(error) => {
                let remark = format!("not run: {} ({error})", release.title());
                eprintln!("xtask: {remark}");
                remarks.push(remark);
            }
        }
    }
    remarks
}
