//! Which file systems a database may be on. SQLite's locks and its shared memory need one kernel that has
//! both: over a network, two hosts can consider themselves the holder of one lock, and each of them reads
//! another clock.

use std::path::Path;

use lockwell_core::Finding;

/// What a file system means for locks.
// Elsewhere it is not found out.
#[cfg_attr(not(any(target_os = "linux", test)), expect(dead_code))]
#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Local,
    /// Of a container, on the layers of its image.
    Layers,
    Network(String),
    /// A program serves it, and nobody knows from where.
    Unknown(String),
}

/// The magic numbers of statfs(2), with the names that mount(8) uses.
#[cfg(any(target_os = "linux", test))]
const NETWORK: [(u32, &str); 14] = [
    (0x6969, "nfs"),
    (0x517b, "smb"),
    (0xff53_4d42, "cifs"),
    (0xfe53_4d42, "smb2"),
    (0x0102_1997, "9p"),
    (0x00c3_6400, "ceph"),
    (0x5346_414f, "afs"),
    (0x6b41_4653, "kafs"),
    (0x7375_7245, "coda"),
    (0x0bd0_0bd0, "lustre"),
    (0x4750_4653, "gpfs"),
    (0x0116_1970, "gfs2"),
    (0x7461_636f, "ocfs2"),
    (0x786f_4256, "vboxsf"),
];

/// `tmpfs` and `ramfs`.
#[cfg(target_os = "linux")]
const IN_MEMORY: [u32; 2] = [0x0102_1994, 0x8584_58f6];

#[cfg(any(target_os = "linux", test))]
const OVERLAY: u32 = 0x794c_7630;

#[cfg(any(target_os = "linux", test))]
const FUSE: u32 = 0x6573_5546;

/// File systems in user space of which it is known that they go over a network.
#[cfg(any(target_os = "linux", test))]
const FUSE_NETWORK: [&str; 12] = [
    "sshfs",
    "s3fs",
    "glusterfs",
    "ceph",
    "ceph-fuse",
    "davfs",
    "davfs2",
    "curlftpfs",
    "rclone",
    "gcsfuse",
    "juicefs",
    "nfs",
];

/// What the file system of this path means for locks, for a person.
pub(super) fn finding(path: &Path) -> Finding {
    let remedy = "put the file on a local disk, or use a server for locks between hosts";
    match kind_of(path) {
        Some(Kind::Local | Kind::Layers) => Finding::good("file system", "local"),
        Some(Kind::Network(name)) => {
            let text = format!("a network file system ({name}): two hosts can hold the same lock");
            Finding::bad("file system", text, remedy)
        }
        Some(Kind::Unknown(name)) => {
            let text =
                format!("a program serves it ({name}); if that goes over a network, locks are not exclusive");
            Finding::doubtful("file system", text, remedy)
        }
        None => Finding::doubtful("file system", "its kind is unknown", remedy),
    }
}

/// Whom locks on this path exclude, where that is not every process of the host.
pub(super) fn reach(path: &Path) -> Option<Finding> {
    (kind_of(path)? == Kind::Layers).then(|| {
        let text = "the file is on a container's own file system (overlay): another container has another file under this name, \
             and it ends with its container";
        let remedy = "put it on a volume, and give all containers the folder that it is in";
        Finding::doubtful("reach", text, remedy)
    })
}

/// Says why this is not the only name of the file. SQLite puts its log and its shared memory beside the name
/// by which it opens a file, so under two names it would be two locks.
pub(super) fn second_name(path: &Path) -> Option<String> {
    let real = path.canonicalize().ok()?;
    if links(&real) > 1 {
        return Some(
            "the database file has another name (a hard link), and under that it would be another lock: remove the link"
                .to_owned(),
        );
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    is_mount(&mounts, real.to_str()?).then(|| {
        "the database file is mounted by itself, and under its other name it would be another lock: mount the folder that it \
         is in"
            .to_owned()
    })
}

#[cfg(unix)]
fn links(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |found| std::os::unix::fs::MetadataExt::nlink(&found))
}

#[cfg(not(unix))]
fn links(_: &Path) -> u64 {
    0
}

/// Whether something is mounted at this path, in the form of `/proc/self/mountinfo`.
fn is_mount(mounts: &str, path: &str) -> bool {
    let escaped =
        path.replace('\\', "\\134").replace(' ', "\\040").replace('\t', "\\011").replace('\n', "\\012");
    mounts.lines().any(|line| line.split(' ').nth(4) == Some(&escaped))
}

/// The file, or its folder if it does not exist yet.
fn existing(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if path.exists() { path } else { folder }
}

/// Says why the file system of this path is no good. What is doubtful is logged.
pub(super) fn refusal(path: &Path) -> Option<String> {
    match kind_of(existing(path))? {
        Kind::Local | Kind::Layers => None,
        Kind::Network(name) => Some(format!(
            "the file is on a network file system ({name}), where SQLite's locks cannot be relied on: put it on a local \
             disk, use a server for locks between hosts, or say any_filesystem=true if all processes are on one host"
        )),
        Kind::Unknown(name) => {
            tracing::warn!(
                lockwell.filesystem = name,
                "the lock file is on a file system in user space; if that goes over a network, locks are not exclusive"
            );
            None
        }
    }
}

/// Whether only this kernel has the file system of this path mounted. The path need not exist yet.
pub(super) fn is_of_one_host(path: &Path) -> bool {
    matches!(kind_of(existing(path)), Some(Kind::Local | Kind::Layers))
}

/// Whether the file is in memory, where an fsync has nothing to do.
#[cfg(target_os = "linux")]
pub(super) fn is_in_memory(path: &Path) -> bool {
    magic(path).is_some_and(|magic| IN_MEMORY.contains(&magic))
}

#[cfg(not(target_os = "linux"))]
pub(super) fn is_in_memory(_: &Path) -> bool {
    false
}

/// Whether this user lacks a right to the file, or to its folder. SQLite has one error for that and for a
/// missing folder.
///
/// The file is not opened: closing it again would end the locks that this process has on it.
#[cfg(unix)]
pub(super) fn is_forbidden(path: &Path) -> bool {
    use rustix::fs::{Access, access};
    let folder =
        path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    let refused = |path, rights| access(path, rights) == Err(rustix::io::Errno::ACCESS);
    refused(path, Access::READ_OK) || (!path.exists() && refused(folder, Access::WRITE_OK | Access::EXEC_OK))
}

#[cfg(not(unix))]
pub(super) fn is_forbidden(_: &Path) -> bool {
    false
}

#[cfg(target_os = "linux")]
fn magic(path: &Path) -> Option<u32> {
    // The type of the number differs from machine to machine; all of the magic numbers have 32 bits.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    rustix::fs::statfs(path).ok().map(|found| found.f_type as u32)
}

#[cfg(target_os = "linux")]
fn kind_of(path: &Path) -> Option<Kind> {
    use std::os::unix::fs::MetadataExt;
    let magic = magic(path)?;
    let device = std::fs::metadata(path).ok()?.dev();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    Some(classify(magic, type_of_mount(&mounts, rustix::fs::major(device), rustix::fs::minor(device))))
}

#[cfg(not(target_os = "linux"))]
fn kind_of(_: &Path) -> Option<Kind> {
    None
}

#[cfg(any(target_os = "linux", test))]
fn classify(magic: u32, mounted_as: Option<&str>) -> Kind {
    if let Some((_, name)) = NETWORK.iter().find(|(number, _)| *number == magic) {
        return Kind::Network((*name).to_owned());
    }
    if magic != FUSE {
        return if magic == OVERLAY { Kind::Layers } else { Kind::Local };
    }
    let name = mounted_as.unwrap_or("fuse");
    match name.strip_prefix("fuse.") {
        Some(program) if FUSE_NETWORK.contains(&program) => Kind::Network(name.to_owned()),
        // A disk that is served by a program of this host.
        _ if name == "fuseblk" => Kind::Local,
        _ => Kind::Unknown(name.to_owned()),
    }
}

/// The type of the mount with this device, in the form of `/proc/self/mountinfo`.
#[cfg(any(target_os = "linux", test))]
fn type_of_mount(mounts: &str, major: u32, minor: u32) -> Option<&str> {
    let device = format!("{major}:{minor}");
    mounts.lines().find_map(|line| {
        let (mount, source) = line.split_once(" - ")?;
        (mount.split(' ').nth(2)? == device).then(|| source.split(' ').next())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
36 35 98:0 / /mnt1 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
57 35 0:49 / /home/me/far rw,nosuid shared:9 - fuse.sshfs me@far: rw,user_id=0
58 35 0:50 / /media/disk rw - fuseblk /dev/sdb1 rw
59 35 0:51 / /shared rw - fuse.grpcfuse grpcfuse rw";

    #[test]
    fn network_file_systems_are_told_from_local_ones() {
        let network = |name: &str| Kind::Network(name.to_owned());
        assert_eq!(classify(0x6969, Some("nfs4")), network("nfs"));
        assert_eq!(classify(0xff53_4d42, None), network("cifs"));
        assert_eq!(classify(0xfe53_4d42, Some("smb3")), network("smb2"));
        assert_eq!(classify(0x0102_1997, Some("9p")), network("9p"));
        assert_eq!(classify(0x794c_7630, Some("overlay")), Kind::Layers);
        // ext4, xfs, btrfs, tmpfs, zfs
        for local in [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x2fc1_2fc1] {
            assert_eq!(classify(local, None), Kind::Local, "{local:x}");
        }
        assert_eq!(classify(FUSE, type_of_mount(MOUNTS, 0, 49)), network("fuse.sshfs"));
        assert_eq!(classify(FUSE, type_of_mount(MOUNTS, 0, 50)), Kind::Local);
        assert_eq!(classify(FUSE, type_of_mount(MOUNTS, 0, 51)), Kind::Unknown("fuse.grpcfuse".into()));
        assert_eq!(classify(FUSE, type_of_mount(MOUNTS, 0, 52)), Kind::Unknown("fuse".into()));
    }

    #[test]
    fn a_file_that_is_mounted_by_itself_is_found() {
        let mounts = "36 35 98:0 / /data rw - ext4 /dev/sda rw\n\
                      37 36 98:0 /a.db /data/my\\040locks.db rw - ext4 /dev/sda rw";
        assert!(is_mount(mounts, "/data/my locks.db"));
        assert!(!is_mount(mounts, "/data/locks.db") && !is_mount(mounts, "/a.db"));
    }

    #[test]
    fn the_file_system_of_the_tests_is_accepted() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(finding(folder.path()).severity, lockwell_core::Severity::Good);
        assert_eq!(refusal(&folder.path().join("not yet there")), None);
    }
}
