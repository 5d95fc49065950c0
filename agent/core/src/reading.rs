//! Observations, from kernel events or from files.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::units::{Bytes, DeviceNumber};

pub mod container_runtime;
pub mod memory_use;
pub mod oom;
pub mod pods;
pub mod reclaim;

/// A signal on which a threshold can be set, with the kubelet's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Signal {
    /// `MemTotal` less the working set of the root cgroup, in bytes.
    MemoryAvailable,
    /// The pods cgroup's limit less its working set, in bytes. Not configurable: derived from
    /// `memory.available`.
    AllocatableMemoryAvailable,
    /// Bytes that a non-root user may still write on the file system of the root directory.
    NodefsAvailable,
    /// Free inodes of the same file system.
    NodefsInodesFree,
    /// Bytes on the file system of the container images.
    ImagefsAvailable,
    /// Free inodes of the same file system.
    ImagefsInodesFree,
    /// min(`pid_max`, `threads-max`) less the number of tasks.
    PidAvailable,
    /// The pods cgroup's own `pids.max` less its `pids.current`. Not configurable: derived from
    /// `pid.available`.
    AllocatablePidAvailable,
}

impl Signal {
    /// In the order in which the signals are evaluated.
    pub const ALL: [Self; 8] = [
        Self::MemoryAvailable,
        Self::AllocatableMemoryAvailable,
        Self::NodefsAvailable,
        Self::NodefsInodesFree,
        Self::ImagefsAvailable,
        Self::ImagefsInodesFree,
        Self::PidAvailable,
        Self::AllocatablePidAvailable,
    ];

    /// Space and inodes of the file system of the kubelet's root directory.
    pub const NODEFS: [Self; 2] = [Self::NodefsAvailable, Self::NodefsInodesFree];

    /// Space and inodes of the file system of the container images.
    pub const IMAGEFS: [Self; 2] = [Self::ImagefsAvailable, Self::ImagefsInodesFree];

    /// The kubelet's name, as in `evictionHard`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MemoryAvailable => "memory.available",
            Self::AllocatableMemoryAvailable => "allocatableMemory.available",
            Self::NodefsAvailable => "nodefs.available",
            Self::NodefsInodesFree => "nodefs.inodesFree",
            Self::ImagefsAvailable => "imagefs.available",
            Self::ImagefsInodesFree => "imagefs.inodesFree",
            Self::PidAvailable => "pid.available",
            Self::AllocatablePidAvailable => "allocatablePid.available",
        }
    }

    /// Derived signals cannot be configured.
    pub const fn is_derived(self) -> bool {
        matches!(
            self,
            Self::AllocatableMemoryAvailable | Self::AllocatablePidAvailable
        )
    }

    pub const fn is_in_bytes(self) -> bool {
        match self {
            Self::MemoryAvailable
            | Self::AllocatableMemoryAvailable
            | Self::NodefsAvailable
            | Self::ImagefsAvailable => true,
            Self::NodefsInodesFree
            | Self::ImagefsInodesFree
            | Self::PidAvailable
            | Self::AllocatablePidAvailable => false,
        }
    }

    /// Returns the resource whose condition depends on this signal.
    pub const fn resource(self) -> Resource {
        match self {
            Self::MemoryAvailable | Self::AllocatableMemoryAvailable => Resource::Memory,
            Self::NodefsAvailable
            | Self::NodefsInodesFree
            | Self::ImagefsAvailable
            | Self::ImagefsInodesFree => Resource::Disk,
            Self::PidAvailable => Resource::Pids,
            Self::AllocatablePidAvailable => Resource::PodsPids,
        }
    }
}

/// A resource that a node can run out of, with its condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Resource {
    /// `MemoryPressure`.
    Memory,
    /// `DiskPressure`: space and inodes.
    Disk,
    /// `PIDPressure`.
    Pids,
    /// `DiskIOPressure`: disks that respond slowly.
    DiskIo,
    /// `DiskFailing`: disks that do not respond at all, or respond with errors.
    DiskFailing,
    /// Tasks of all pods together. It has no condition: a kubelet's `PIDPressure` is about the
    /// node's tasks only.
    PodsPids,
}

impl Resource {
    /// In the order in which the conditions are written.
    pub const ALL: [Self; 6] = [
        Self::Memory,
        Self::Disk,
        Self::Pids,
        Self::DiskIo,
        Self::DiskFailing,
        Self::PodsPids,
    ];

    /// The name in log fields and metric labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Disk => "disk",
            Self::Pids => "pids",
            Self::DiskIo => "diskIO",
            Self::DiskFailing => "diskFailing",
            Self::PodsPids => "podsPids",
        }
    }
}

/// Stalls of a group of tasks on a resource: the content of a pressure file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Stall {
    pub of: StallOf,
    pub kind: StallKind,
}

impl Stall {
    pub const NODE_MEMORY: Self = Self::new(StallOf::Node, StallKind::Memory);

    pub const ALL: [Self; 4] = [
        Self::new(StallOf::Node, StallKind::Memory),
        Self::new(StallOf::Node, StallKind::Io),
        Self::new(StallOf::Pods, StallKind::Memory),
        Self::new(StallOf::Pods, StallKind::Io),
    ];

    pub const fn new(of: StallOf, kind: StallKind) -> Self {
        Self { of, kind }
    }
}

/// The state on which a condition depends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Ground {
    Resource(Resource),
    Stall(Stall),
}

impl Ground {
    pub const fn resource(self) -> Option<Resource> {
        match self {
            Self::Resource(resource) => Some(resource),
            Self::Stall(_) => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum StallOf {
    /// All tasks of the node.
    Node,
    /// The tasks below the pods cgroup.
    Pods,
}

impl StallOf {
    /// The name in log fields and metric labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Pods => "pods",
        }
    }
}

/// A resource that tasks wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum StallKind {
    /// Memory: reclaim, refaults, swap.
    Memory,
    Io,
}

impl StallKind {
    /// The name of the file under `/proc/pressure`, and the part before `.pressure` in a cgroup.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Io => "io",
        }
    }
}

/// The reason for which a source cannot exist on this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AbsentSource {
    /// Turned off in the configuration.
    Disabled,
    /// The kernel has no PSI, or it was turned off at boot.
    NoPsi,
    /// The pods' cgroups are only in hierarchies of version 1, which have no pressure files.
    CgroupV1,
}

impl AbsentSource {
    /// The name in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Disabled => "disabled",
            Self::NoPsi => "no_psi",
            Self::CgroupV1 => "cgroup_v1",
        }
    }

    pub const fn why(self) -> &'static str {
        match self {
            Self::Disabled => "PSI is turned off in the configuration",
            Self::NoPsi => "the kernel has no PSI, or it is turned off",
            Self::CgroupV1 => "the pods' cgroups are of version 1, which has no PSI",
        }
    }

    pub const fn remedy(self) -> &'static str {
        match self {
            Self::Disabled => "turn PSI on in the configuration",
            Self::NoPsi => "boot a kernel with CONFIG_PSI and psi=1",
            Self::CgroupV1 => "boot with cgroup version 2",
        }
    }
}

/// One value of one signal, in the signal's unit: bytes, inodes or pids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    pub signal: Signal,
    /// Negative if a cgroup exceeds its limit.
    pub available: i64,
    pub capacity: u64,
}

impl fmt::Display for Reading {
    /// Writes text for people: `20.9Gi of 23.5Gi (88%)`, `31205 of 32768 (95%)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.signal.is_in_bytes() {
            let available = Bytes::from_bytes(self.available.unsigned_abs());
            let sign = if self.available < 0 { "-" } else { "" };
            write!(
                f,
                "{sign}{available} of {}",
                Bytes::from_bytes(self.capacity)
            )?;
        } else {
            write!(f, "{} of {}", self.available, self.capacity)?;
        }
        let percent = i128::from(self.available)
            .saturating_mul(100)
            .checked_div(i128::from(self.capacity));
        percent.map_or(Ok(()), |percent| write!(f, " ({percent}%)"))
    }
}

/// A whole disk whose requests the kernel stamps with their start time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    /// Name under `/sys/block`, such as `nvme0n1`.
    pub name: String,
    /// Content of the file `dev`.
    pub device: DeviceNumber,
    /// `queue/rotational`. Meaningless for a virtio disk, which always reports 1.
    pub rotational: bool,
    /// The disk is a virtio device, or behind one.
    pub virtio: bool,
    /// `queue/iostats`. While it is off, the kernel's time stamps are stale, not zero.
    pub iostats: bool,
    pub role: DiskRole,
}

/// The extent of the damage if a disk is slow or fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DiskRole {
    /// The node is affected: the disk is below nodefs, imagefs, the root file system or swap; on a
    /// machine without Kubernetes, below any file system that is mounted.
    Node,
    /// At most the pods that mount the disk are affected.
    Volume,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DiskReport {
    SlowWindow(SlowWindow),
    Error(DiskError),
}

/// A window in which at least half of the latency-sensitive requests of a disk were slow: they took
/// the limit or longer. Also the sum of such windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SlowWindow {
    /// Latency-sensitive requests: those that a task waits for.
    pub judged: u32,
    /// The slow ones among them.
    pub slow: u32,
    pub length: Duration,
    /// The longest latency among them.
    pub longest: Duration,
}

/// A request that failed with an error of the medium or the transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskError {
    /// False for a read.
    pub write: bool,
    /// The error number, positive.
    pub errno: i32,
}

/// A file system without which the node cannot work.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum NodeFilesystem {
    /// The file system of the kubelet's root directory.
    Nodefs,
    /// The file system of the container images.
    Imagefs,
    Root,
    /// On a machine without Kubernetes: another one, at this mount point, escaped.
    Mounted(Box<str>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FilesystemAccess {
    Writable,
    ReadOnly,
    /// The file system stopped working after an error, even if its mount is writable.
    ShutDown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesystemErrors {
    /// Counted since the file system was created or repaired, also in former boots.
    pub count: u64,
    /// Time of the last error, in seconds since 1970.
    pub last: u64,
    /// After the last error, nothing can be written until the file system is mounted again.
    pub stopped: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesystemReading {
    pub filesystem: NodeFilesystem,
    /// Identifies the mount.
    pub mount: u64,
    /// The mount point and the device: `/var/lib/kubelet on dm-3`, escaped.
    pub place: String,
    pub access: FilesystemAccess,
    /// `None` if the file system does not count errors, or they cannot be read.
    pub errors: Option<FilesystemErrors>,
}

impl NodeFilesystem {
    /// The name in messages and log fields.
    pub const fn as_str(&self) -> &str {
        match self {
            Self::Nodefs => "nodefs",
            Self::Imagefs => "imagefs",
            Self::Root => "root",
            Self::Mounted(point) => point,
        }
    }
}

impl Disk {
    /// The maximum number of disks that are listed and watched. The window table in the kernel has
    /// no room for more.
    pub const MAX: usize = 256;

    /// Returns true for drivers that pass requests on to other disks or to memory, and for
    /// removable media. The name alone decides.
    pub fn is_excluded(name: &str) -> bool {
        const KINDS: [&str; 9] = [
            "loop", "ram", "zram", "dm-", "md", "drbd", "pmem", "sr", "fd",
        ];
        KINDS.iter().any(|kind| {
            // `sr0` and `md127`, also `md_d0`; not `sram` or a driver to come.
            name.strip_prefix(kind)
                .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit() || c == '_'))
        })
    }
}

/// Properties that do not change while the machine is up, read once at start.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Machine {
    /// `/etc/machine-id`, else `/var/lib/dbus/machine-id`, trimmed; empty without either.
    pub machine_id: String,
    /// `/sys/class/dmi/id/product_uuid` or a similar file, else `/etc/machine-id`; empty without
    /// any.
    pub system_uuid: String,
    /// `/proc/sys/kernel/random/boot_id`.
    pub boot_id: String,
    /// `uname -r`, or `Unknown`.
    pub kernel_version: String,
    /// `PRETTY_NAME` of os-release without quotes; `Linux` without the key, `Unknown` without a
    /// file.
    pub os_image: String,
    /// Online logical CPUs.
    pub cpus: u32,
    /// `MemTotal`.
    pub memory: Bytes,
    /// `SwapTotal`; zero means no swap.
    pub swap: Bytes,
    /// Each huge page size of the kernel, with the number of its reserved pages.
    pub huge_pages: Vec<HugePages>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HugePages {
    pub page_size: Bytes,
    /// `nr_hugepages`.
    pub pages: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// The name of the interface, such as `eth0`.
    pub interface: String,
    /// `IFF_UP`.
    pub up: bool,
    /// `IFF_LOOPBACK`.
    pub loopback: bool,
    /// `IFF_POINTOPOINT`.
    pub point_to_point: bool,
    pub ip: IpAddr,
}

/// The sources of the node's addresses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Network {
    /// Every address of every interface, in the kernel's order.
    pub addresses: Vec<InterfaceAddress>,
    /// Interfaces with an IPv4 default route, from `/proc/net/route`. `None`: no such file.
    pub default_v4: Option<Vec<String>>,
    /// Interfaces with an IPv6 default route, from `/proc/net/ipv6_route`.
    pub default_v6: Vec<String>,
    /// The addresses of the node's name in DNS, in the resolver's order.
    pub resolved: Vec<IpAddr>,
    /// The lookup of the name is under way: [`Network::resolved`] is not known yet.
    pub is_resolving: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_is_printed_for_people() {
        use Signal::{AllocatableMemoryAvailable, MemoryAvailable, PidAvailable};
        #[rustfmt::skip]
        let rows = [
            (MemoryAvailable, 22_454_870_016, 25_276_502_016, "20.9Gi of 23.5Gi (88%)"),
            (AllocatableMemoryAvailable, -1_048_576, 1 << 30, "-1.0Mi of 1.0Gi (0%)"),
            (PidAvailable, 31_205, 32_768, "31205 of 32768 (95%)"),
            (PidAvailable, 0, 0, "0 of 0"),
        ];
        for (signal, available, capacity, expected) in rows {
            let reading = Reading {
                signal,
                available,
                capacity,
            };
            assert_eq!(reading.to_string(), expected);
        }
    }
}
