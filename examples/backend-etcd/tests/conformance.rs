//! The whole conformance suite of lockwell, on a real etcd: `cargo test`. It needs the program `etcd` in the
//! path.

use std::process::{Command, ExitCode};

use lockwell::conformance::{self, Need, Site, Target};

fn main() -> ExitCode {
    let registry = backend_etcd::registry().expect("the scheme is free");
    let connect = move |url: String| {
        let registry = registry.clone();
        async move { registry.connect(url).await }
    };
    let offers = [Need::Shared, Need::Fencing, Need::Fifo, Need::Counted, Need::Durable];
    conformance::main(
        connect,
        [Target::on_server("etcd", offers, etcd, |addr| format!("etcd://{addr}/lockwell"))],
    )
}

fn etcd(site: &Site) -> Command {
    let (clients, peers) = (format!("http://{}", site.addr()), format!("http://{}", site.peer_addr()));
    let mut command = Command::new("etcd");
    command.arg("--data-dir").arg(site.folder().join("data"));
    command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
    command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
    command.args(["--initial-cluster", &format!("default={peers}")]);
    command
}
