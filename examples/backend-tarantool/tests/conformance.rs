//! The whole conformance suite, on a real Tarantool: `cargo test`. It needs the program `tarantool`.

use std::process::{Command, ExitCode};

use lockwell_conformance::{Need, Site, Target};

fn main() -> ExitCode {
    let connect = |url: String| async move { backend_tarantool::registry()?.connect(url).await };
    let offers = [Need::Fencing, Need::Fifo, Need::Counted, Need::Durable];
    let url = |addr| format!("tarantool://{addr}");
    lockwell_conformance::main(connect, [Target::on_server("tarantool", offers, server, url)])
}

fn server(site: &Site) -> Command {
    let mut command = Command::new("tarantool");
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/src/locks.lua"));
    command.env("LISTEN", site.addr().to_string()).current_dir(site.folder());
    command
}
