//! The mounts of the node: the file system that a path is on, and whether that is read-only.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use nodepulse_core::reading::FilesystemAccess;
use nodepulse_core::units::DeviceNumber;

use super::{HostError, HostRoot};

/// The file of the mounts that the host's first process sees. In a container without the host's
/// processes, the first process is that of the container.
const OF_HOST: &str = "proc/1/mountinfo";
const OF_THIS_PROCESS: &str = "proc/self/mountinfo";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Identifies the mount until it is unmounted.
    pub id: u64,
    /// Device number. The major number 0 is that of no device.
    pub device: DeviceNumber,
    pub point: PathBuf,
    pub kind: String,
    /// A device, or another name that the file system gives its source.
    pub source: String,
    /// Access to the file system itself, not only to this mount of it.
    pub access: FilesystemAccess,
}

/// The mounts of a mount namespace, in the order in which they were mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mounts(Vec<Mount>);

impl Mounts {
    /// Reads the mounts of the host's first process, or of this process if those cannot be read.
    pub fn of_host(root: &HostRoot) -> Result<Self, HostError> {
        Self::read(root, OF_HOST).or_else(|_| Self::of_this_process(root))
    }

    pub fn of_this_process(root: &HostRoot) -> Result<Self, HostError> {
        Self::read(root, OF_THIS_PROCESS)
    }

    fn read(root: &HostRoot, file: &str) -> Result<Self, HostError> {
        Ok(Self::parse(&root.read_list(file)?))
    }

    /// Parses the text. Lines that cannot be parsed are skipped.
    pub fn parse(text: &str) -> Self {
        Self(text.lines().filter_map(mount).collect())
    }

    /// Returns the last mount at each mount point, which hides those before it.
    pub fn by_point(&self) -> BTreeMap<&Path, &Mount> {
        let mounts = self.0.iter();
        mounts.map(|mount| (&*mount.point, mount)).collect()
    }

    /// Returns the mount that `path` is on: the last one at its longest mounted ancestor.
    pub fn of(&self, path: &Path) -> Option<&Mount> {
        let above = self.0.iter().filter(|mount| path.starts_with(&mount.point));
        above.max_by_key(|mount| mount.point.components().count())
    }
}

/// Parses a line of `mountinfo`:
/// `36 35 98:0 /root /point rw shared:1 - ext4 /dev/sda1 rw,errors=remount-ro`.
fn mount(line: &str) -> Option<Mount> {
    let (left, right) = line.split_once(" - ")?;
    let mut left = left.split(' ');
    let id = left.next()?.parse().ok()?;
    let device = DeviceNumber::parse(left.nth(1)?)?;
    let point = unescape(left.nth(1)?);
    let mut right = right.split(' ');
    let (kind, source, options) = (right.next()?, right.next()?, right.next()?);
    let has = |option: &str| options.split(',').any(|found| found == option);
    // Linux 6.15 and later keep an ext4 writable by name after an error.
    let access = if has("emergency_ro") || has("shutdown") {
        FilesystemAccess::ShutDown
    } else if has("ro") {
        FilesystemAccess::ReadOnly
    } else {
        FilesystemAccess::Writable
    };
    Some(Mount {
        id,
        device,
        point: PathBuf::from(point),
        kind: kind.to_owned(),
        source: unescape(source),
        access,
    })
}

/// Decodes space, tab, newline and backslash, which are octal.
fn unescape(text: &str) -> String {
    const ESCAPED: [(&str, &str); 4] = [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ];
    let mut text = text.to_owned();
    if text.contains('\\') {
        for (escaped, plain) in ESCAPED {
            text = text.replace(escaped, plain);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::scratch::Scratch;

    const TABLE: &str = "\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw,errors=remount-ro
23 22 0:21 / /proc rw - proc proc rw
30 22 254:16 / /var/lib rw - ext4 /dev/vdb ro,errors=remount-ro
31 30 254:32 / /var/lib/kubelet ro,nosuid - xfs /dev/vdc rw,attr2
32 22 254:48 / /mnt/with\\040space rw - ext4 /dev/vdd rw,emergency_ro
33 31 0:50 / /var/lib/kubelet rw - tmpfs tmpfs rw
34 22 254:64 / /mnt/a\\011b\\012c rw - xfs /dev/with\\040space rw,shutdown
35 22 254:80 / /mnt/backslash\\134040 rw - xfs /dev/vdf rw
nonsense
40 22 a:b / /x rw - ext4 /dev/x rw
";

    #[test]
    fn a_path_is_on_the_last_mount_at_its_longest_mounted_ancestor() {
        use FilesystemAccess::{ReadOnly, ShutDown, Writable};

        let mounts = Mounts::parse(TABLE);
        //  path, source, access to the file system
        let rows = [
            ("/", "/dev/root", Writable),
            ("/etc/x", "/dev/root", Writable),
            ("/var/lib/containerd", "/dev/vdb", ReadOnly),
            ("/var/library", "/dev/root", Writable),
            ("/var/lib/kubelet/pods", "tmpfs", Writable),
            ("/mnt/with space/a", "/dev/vdd", ShutDown),
            ("/mnt/a\tb\nc", "/dev/with space", ShutDown),
            ("/mnt/backslash\\040", "/dev/vdf", Writable),
            ("/x", "/dev/root", Writable),
        ];
        for (path, source, access) in rows {
            let found = mounts.of(Path::new(path)).unwrap();
            assert_eq!((&*found.source, found.access), (source, access), "{path}");
        }
        assert_eq!(Mounts::parse("").of(Path::new("/")), None);
    }

    #[test]
    fn each_mount_point_has_its_last_mount() {
        let mounts = Mounts::parse(TABLE);
        let by_point = mounts.by_point();
        assert_eq!(by_point.len(), 7);
        for (point, mount) in by_point {
            assert_eq!(mounts.of(point), Some(mount), "{}", point.display());
        }
    }

    #[test]
    fn the_mounts_of_the_host_are_those_of_its_first_process_if_they_can_be_read() {
        let line = |source: &str| format!("22 1 254:0 / / rw - ext4 {source} rw\n");
        let dir = Scratch::new();
        let root = || {
            let mounts = Mounts::of_host(&dir.root()).ok()?;
            Some(mounts.of(Path::new("/"))?.source.clone())
        };
        assert_eq!(root(), None);
        dir.write(OF_THIS_PROCESS, line("container"));
        assert_eq!(root().as_deref(), Some("container"));
        // The file is that of a node with many pods.
        dir.write(OF_HOST, line("host").repeat(2000));
        assert_eq!(root().as_deref(), Some("host"));
    }

    #[test]
    fn a_read_only_mount_of_a_writable_file_system_is_not_read_only() {
        let table = "31 30 254:32 / /data ro,nosuid - xfs /dev/vdc rw,attr2\n";
        let mounts = Mounts::parse(table);
        let mount = mounts.of(Path::new("/data")).unwrap();
        assert_eq!((mount.id, mount.access), (31, FilesystemAccess::Writable));
        let device = DeviceNumber {
            major: 254,
            minor: 32,
        };
        assert_eq!((mount.device, &*mount.kind), (device, "xfs"));
    }
}
