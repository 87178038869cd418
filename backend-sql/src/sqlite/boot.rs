//! Which boot of the host this is.

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
        assert_eq!(id(), id());
    }
}
