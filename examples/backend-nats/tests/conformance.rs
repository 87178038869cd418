//! The whole conformance suite, on a real NATS: `cargo test`. `cargo xtask install` gets the program.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use lockwell::conformance::{self, Need, Site, Target};

fn main() -> ExitCode {
    let connect = |url: String| async move { backend_nats::registry()?.connect(url).await };
    let url = |addr| format!("nats://{addr}");
    conformance::main(connect, [Target::on_server("nats", [Need::Fencing, Need::Durable], server, url)])
}

fn server(site: &Site) -> Command {
    let file = site.folder().join("nats.conf");
    let text = format!("listen: '{}', jetstream: {{store_dir: data, sync_interval: always}}", site.addr());
    fs::write(&file, text).expect("the configuration");
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/bin/nats-server");
    let mut command = Command::new(if ours.exists() { &ours } else { Path::new("nats-server") });
    command.arg("-c").arg(file).current_dir(site.folder());
    command
}
