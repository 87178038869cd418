//! Which boot of the host this is, and which host.

use std::time::Duration;

/// The id of this boot, if all processes of the host that may have the file open read the same one, and no
/// other host does.
///
/// systemd-nspawn and LXC mount an id of their own over it in each container. A file that two such containers
/// share would then look as if the host crashed each time the other one has written.
#[cfg(target_os = "linux")]
pub(super) fn id() -> Option<String> {
    const ID: &str = "/proc/sys/kernel/random/boot_id";
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    if mounted_at(&mounts, ID) {
        return None;
    }
    let id = std::fs::read_to_string(ID).ok()?;
    Some(id.trim().to_owned()).filter(|id| !id.is_empty())
}

#[cfg(not(target_os = "linux"))]
pub(super) fn id() -> Option<String> {
    None
}

/// An id of this host that stays when it starts anew. Empty if there is none. In a container it may be that
/// of the container or of its image, so what has the same boot is one host, whatever this says.
#[cfg(target_os = "linux")]
pub(super) fn host() -> String {
    let ids = ["/etc/machine-id", "/var/lib/dbus/machine-id"];
    ids.iter().find_map(|file| host_in(&std::fs::read_to_string(file).ok()?)).unwrap_or_default()
}

#[cfg(not(target_os = "linux"))]
pub(super) fn host() -> String {
    String::new()
}

/// The id in such a file. It says "uninitialized" for a moment when a new system starts.
#[cfg(any(target_os = "linux", test))]
fn host_in(text: &str) -> Option<String> {
    let id = text.trim();
    (!id.is_empty() && id != "uninitialized").then(|| id.to_owned())
}

/// For how long the host has been running.
#[cfg(target_os = "linux")]
pub(super) fn uptime() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::from_secs(time.tv_sec.unsigned_abs())
}

#[cfg(not(target_os = "linux"))]
pub(super) fn uptime() -> Duration {
    Duration::ZERO
}

/// Whether something is mounted at exactly this place, by the form of `/proc/self/mountinfo`.
#[cfg(any(target_os = "linux", test))]
fn mounted_at(mounts: &str, place: &str) -> bool {
    mounts.lines().any(|line| line.split(' ').nth(4) == Some(place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_of_a_container_is_not_that_of_the_host() {
        let host = "22 1 0:21 / /proc rw - proc proc rw\n23 22 0:21 /sys /proc/sys ro - proc proc rw";
        let inside =
            format!("{host}\n24 22 0:30 /boot_id /proc/sys/kernel/random/boot_id ro - tmpfs tmpfs rw");
        let place = "/proc/sys/kernel/random/boot_id";
        assert!(!mounted_at(host, place) && mounted_at(&inside, place));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn it_stays_the_same() {
        assert_eq!((id(), host()), (id(), host()));
        assert!(uptime() > Duration::ZERO);
    }

    #[test]
    fn a_file_may_have_no_id() {
        assert_eq!(host_in("3d1219c7\n").as_deref(), Some("3d1219c7"));
        for none in ["", "\n", "uninitialized\n"] {
            assert_eq!(host_in(none), None);
        }
    }
}
