//! What was observed, from a kernel event or from a file.

use std::fmt;
use std::net::IpAddr;

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
    /// Every signal, in the order in which they are evaluated.
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

    /// Whether it is derived from another signal, and cannot be configured.
    pub const fn is_derived(self) -> bool {
        matches!(
            self,
            Self::AllocatableMemoryAvailable | Self::AllocatablePidAvailable
        )
    }

    /// Whether its unit is bytes.
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

    /// The resource whose condition depends on this signal.
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

/// What a node can run out of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Resource {
    /// `MemoryPressure`.
    Memory,
    /// `DiskPressure`: space and inodes.
    Disk,
    /// `PIDPressure`.
    Pids,
    /// `DiskIOPressure`: how quickly the disks respond.
    DiskIo,
    /// `DiskFailing`: whether the disks respond at all, without errors.
    DiskFailing,
    /// Tasks of all pods together. It has no condition: a kubelet's `PIDPressure` is about the
    /// node's tasks only.
    PodsPids,
}

impl Resource {
    /// Every resource, in the order in which their conditions are written.
    pub const ALL: [Self; 6] = [
        Self::Memory,
        Self::Disk,
        Self::Pids,
        Self::DiskIo,
        Self::DiskFailing,
        Self::PodsPids,
    ];

    /// For log fields and metric labels.
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
    /// The group of tasks.
    pub of: StallOf,
    /// The resource.
    pub kind: StallKind,
}

impl Stall {
    /// Tasks of the node that wait for memory.
    pub const NODE_MEMORY: Self = Self::new(StallOf::Node, StallKind::Memory);

    /// All stalls that can be monitored.
    pub const ALL: [Self; 4] = [
        Self::new(StallOf::Node, StallKind::Memory),
        Self::new(StallOf::Node, StallKind::Io),
        Self::new(StallOf::Pods, StallKind::Memory),
        Self::new(StallOf::Pods, StallKind::Io),
    ];

    /// Stalls of `of` on `kind`.
    pub const fn new(of: StallOf, kind: StallKind) -> Self {
        Self { of, kind }
    }
}

/// What a condition depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Ground {
    /// A resource that can be short.
    Resource(Resource),
    /// Tasks that wait.
    Stall(Stall),
}

/// A group of tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum StallOf {
    /// All tasks of the node.
    Node,
    /// The tasks below the pods cgroup.
    Pods,
}

impl StallOf {
    /// For log fields and metric labels.
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
    /// A disk.
    Io,
}

impl StallKind {
    /// The file's name under `/proc/pressure`, and the part before `.pressure` in a cgroup.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Io => "io",
        }
    }
}

/// Why a source cannot exist on this node.
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
    /// For metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Disabled => "disabled",
            Self::NoPsi => "no_psi",
            Self::CgroupV1 => "cgroup_v1",
        }
    }

    /// The reason.
    pub const fn why(self) -> &'static str {
        match self {
            Self::Disabled => "PSI is turned off in the configuration",
            Self::NoPsi => "the kernel has no PSI, or it is turned off",
            Self::CgroupV1 => "the pods' cgroups are of version 1, which has no PSI",
        }
    }

    /// The remedy.
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
    /// The signal.
    pub signal: Signal,
    /// The available amount. Negative if a cgroup exceeds its limit.
    pub available: i64,
    /// The total amount.
    pub capacity: u64,
}

impl fmt::Display for Reading {
    /// For people: `20.9Gi of 23.5Gi (88%)`, `31205 of 32768 (95%)`.
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
    /// `dev`.
    pub device: DeviceNumber,
    /// `queue/rotational`. Means nothing for a virtio disk, which reports 1 whatever it is.
    pub rotational: bool,
    /// The disk is a virtio device, or behind one.
    pub virtio: bool,
    /// `queue/iostats`. While it is off, the kernel's time stamps are stale, not zero.
    pub iostats: bool,
    /// Who is affected if it fails.
    pub role: DiskRole,
}

/// Who is affected if a disk is slow or fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DiskRole {
    /// The node: it is below nodefs, imagefs, the root file system or swap.
    Node,
    /// At most the pods that mount it.
    Volume,
}

/// A file system without which the node cannot work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum NodeFilesystem {
    /// Of the kubelet's root directory.
    Nodefs,
    /// Of the container images.
    Imagefs,
    /// The root file system.
    Root,
}

/// What can be done with a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FilesystemAccess {
    /// Everything.
    Writable,
    /// Files can be read.
    ReadOnly,
    /// It stopped working after an error, even if its mount is writable.
    ShutDown,
}

/// Errors that a file system has counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesystemErrors {
    /// Since it was created or repaired, also in former boots.
    pub count: u64,
    /// When the last one was, in seconds since 1970.
    pub last: u64,
    /// Whether nothing can be written after it until the file system is mounted again.
    pub stopped: bool,
}

/// What was read of a file system of the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesystemReading {
    /// Which one.
    pub filesystem: NodeFilesystem,
    /// Identifies the mount.
    pub mount: u64,
    /// Where it is mounted, and its device: `/var/lib/kubelet on dm-3`, escaped.
    pub place: String,
    /// What can be done with it.
    pub access: FilesystemAccess,
    /// `None`: it does not count errors, or they cannot be read.
    pub errors: Option<FilesystemErrors>,
}

impl NodeFilesystem {
    /// For messages and log fields.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Nodefs => "nodefs",
            Self::Imagefs => "imagefs",
            Self::Root => "root",
        }
    }
}

impl Disk {
    /// At most this many are listed and watched. The window table in the kernel has no room for more.
    pub const MAX: usize = 256;

    /// Whether a disk is left out of the list for its name alone: drivers that pass requests on to
    /// other disks or to memory, and removable media.
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
    /// `/sys/class/dmi/id/product_uuid` or a similar file, else `/etc/machine-id`; empty without any.
    pub system_uuid: String,
    /// `/proc/sys/kernel/random/boot_id`.
    pub boot_id: String,
    /// `uname -r`, or `Unknown`.
    pub kernel_version: String,
    /// `PRETTY_NAME` of os-release without quotes; `Linux` without the key, `Unknown` without a file.
    pub os_image: String,
    /// Online logical CPUs.
    pub cpus: u32,
    /// `MemTotal`.
    pub memory: Bytes,
    /// `SwapTotal`; zero means no swap.
    pub swap: Bytes,
    /// Each huge page size of the kernel, and how many of its pages are reserved.
    pub huge_pages: Vec<HugePages>,
}

/// The pool of one huge page size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HugePages {
    /// Size of one page.
    pub page_size: Bytes,
    /// `nr_hugepages`.
    pub pages: u64,
}

/// One address of one network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// Name of the interface, such as `eth0`.
    pub interface: String,
    /// `IFF_UP`.
    pub up: bool,
    /// `IFF_LOOPBACK`.
    pub loopback: bool,
    /// `IFF_POINTOPOINT`.
    pub point_to_point: bool,
    /// The address itself.
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
        let rows = [
            (
                MemoryAvailable,
                22_454_870_016,
                25_276_502_016,
                "20.9Gi of 23.5Gi (88%)",
            ),
            (
                AllocatableMemoryAvailable,
                -1_048_576,
                1 << 30,
                "-1.0Mi of 1.0Gi (0%)",
            ),
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
