//! `cargo xtask servers` as a process.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

fn servers(names: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.arg("servers").args(names);
    command
}

#[test]
fn the_releases_are_listed() {
    let output = servers(&[]).output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    for release in testbed::Release::all() {
        let line = shown.lines().find(|line| line.split_whitespace().next() == Some(release.name()));
        // A version, or why there is none.
        assert!(line.is_some_and(|line| line.split_whitespace().count() > 1), "{}: {shown}", release.name());
    }
}

#[test]
#[cfg(unix)]
fn servers_run_until_they_are_interrupted() {
    if !testbed::is_installed(testbed::Redis::installed()) {
        return;
    }
    let mut running = servers(&["redis"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(running.stdout.take().unwrap()).lines();
    let line = lines.next().unwrap().unwrap();
    let addr = line.strip_prefix("redis: redis://").unwrap_or_else(|| panic!("{line}")).to_owned();
    assert!(std::net::TcpStream::connect(&addr).is_ok());
    assert!(lines.next().unwrap().unwrap().contains("until Ctrl-C"));
    let pid = running.id().to_string();
    assert!(Command::new("kill").args(["-s", "INT", &pid]).status().unwrap().success());
    assert!(running.wait().unwrap().success());
    assert!(std::net::TcpStream::connect(&addr).is_err(), "{addr} goes on");
}
