//! What systemd is told, which a socket of the test plays.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use rustix::process::Signal;

use crate::support::{Running, Site, wait_until};

/// The next message, a line each.
#[track_caller]
fn told(systemd: &UnixDatagram) -> Vec<String> {
    let mut room = [0; 4096];
    systemd.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let length = systemd.recv(&mut room).unwrap();
    std::str::from_utf8(&room[..length]).unwrap().lines().map(str::to_owned).collect()
}

const SCRIPT: &str = "echo $LOCKWELL_TOKEN >> terms; while [ ! -e end ]; do sleep 0.02; done";

#[test]
fn a_unit_is_ready_when_it_leads() {
    let site = Site::new();
    let path = site.path("notify");
    let systemd = UnixDatagram::bind(&path).unwrap();
    let holder = site.holder("scheduler", &[]);
    let mut lead = site.lockwell(&["lead", "--ttl", "3s", "scheduler", "sh", "-c", SCRIPT]);
    let lead = Running::start(lead.env("NOTIFY_SOCKET", &path));
    assert_eq!(told(&systemd), ["STATUS=waiting to lead \"scheduler\""]);
    wait_until("a candidate", || site.waiters("scheduler") == 1);
    systemd.set_nonblocking(true).unwrap();
    assert!(systemd.recv(&mut [0]).is_err(), "it does not lead yet");
    systemd.set_nonblocking(false).unwrap();
    site.end(holder);
    let token = |message: &[String]| {
        let [ready, status] = message else { panic!("{message:?}") };
        assert_eq!(ready, "READY=1");
        let token = status.strip_prefix("STATUS=leading \"scheduler\" with token ");
        token.expect(status).parse::<u64>().unwrap()
    };
    let first = token(&told(&systemd));
    wait_until("the first term", || site.read("terms") == first.to_string());
    assert_eq!(site.finish(&["release", "--force", "--yes", "scheduler"]).status, 0);
    assert_eq!(told(&systemd), ["STATUS=lost; waiting to lead \"scheduler\""]);
    assert!(token(&told(&systemd)) > first);
    wait_until("the second term", || site.read("terms").lines().count() == 2);
    lead.signal(Signal::TERM);
    assert_eq!(told(&systemd), ["STOPPING=1"]);
    assert_eq!(lead.finish().status, 143);
}

#[cfg(target_os = "linux")]
#[test]
fn systemd_may_listen_at_a_name_without_a_file() {
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::net::SocketAddr;

    let site = Site::new();
    let name = format!("lockwell-test-{}", site.path("").display());
    let systemd = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let mut lead = site.lockwell(&["lead", "scheduler", "true"]);
    let lead = Running::start(lead.env("NOTIFY_SOCKET", format!("@{name}")));
    assert_eq!(told(&systemd), ["STATUS=waiting to lead \"scheduler\""]);
    assert_eq!(told(&systemd)[0], "READY=1");
    assert_eq!(told(&systemd), ["STOPPING=1"]);
    assert_eq!(lead.finish().status, 0);
}

#[test]
fn a_socket_that_nobody_reads_stops_nothing() {
    let site = Site::new();
    let path = site.path("notify");
    let full = UnixDatagram::bind(&path).unwrap();
    let sender = UnixDatagram::unbound().unwrap();
    sender.set_nonblocking(true).unwrap();
    while sender.send_to(b"x", &path).is_ok() {}
    for address in [&path, &site.path("nowhere")] {
        let mut lead = site.lockwell(&["lead", "scheduler", "true"]);
        let lead = Running::start(lead.env("NOTIFY_SOCKET", address)).finish();
        assert_eq!(lead.status, 0, "{lead:?}");
        assert!(lead.err.contains("systemd was not told"), "{lead:?}");
    }
    drop(full);
}
