//! What was observed, wherever it was learnt: from a kernel event or from a file.

#![forbid(unsafe_code)]

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::units::{Bytes, DeviceNumber};

/// What a threshold can be set on, in the kubelet's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Signal {
    /// `MemTotal` less the working set of the root cgroup, in bytes.
    MemoryAvailable,
    /// The pods cgroup's limit less its working set, in bytes. Not for users: derived from
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
    /// min(`pid_max`, `threads-max`) less the tasks that exist.
    PidAvailable,
    /// The pods cgroup's own `pids.max` less its `pids.current`. Not for users: derived from
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

    /// The kubelet's name, as in `evictionHard`.
    #[must_use]
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

    /// Whether it follows another signal, and cannot be named by users.
    #[must_use]
    pub const fn is_derived(self) -> bool {
        matches!(
            self,
            Self::AllocatableMemoryAvailable | Self::AllocatablePidAvailable
        )
    }

    /// The resource whose condition this signal moves.
    #[must_use]
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

/// What a node can run short of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Resource {
    /// `MemoryPressure`.
    Memory,
    /// `DiskPressure`: space and inodes.
    Disk,
    /// `PIDPressure`.
    Pids,
    /// `DiskIOPressure`: how quickly the disks answer.
    DiskIo,
    /// Tasks that all pods together may have. No condition of its own: a kubelet's `PIDPressure` is
    /// about the node's tasks alone.
    PodsPids,
}

impl Resource {
    /// Every resource, in the order in which their conditions are written.
    pub const ALL: [Self; 5] = [
        Self::Memory,
        Self::Disk,
        Self::Pids,
        Self::DiskIo,
        Self::PodsPids,
    ];

    /// For log fields and metric labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Disk => "disk",
            Self::Pids => "pids",
            Self::DiskIo => "diskIO",
            Self::PodsPids => "podsPids",
        }
    }
}

/// Tasks of a group that wait for a resource: what a pressure file is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Stall {
    /// Whose tasks.
    pub of: StallOf,
    /// What they wait for.
    pub kind: StallKind,
}

impl Stall {
    /// Every one that we watch.
    pub const ALL: [Self; 4] = [
        Self::new(StallOf::Node, StallKind::Memory),
        Self::new(StallOf::Node, StallKind::Io),
        Self::new(StallOf::Pods, StallKind::Memory),
        Self::new(StallOf::Pods, StallKind::Io),
    ];

    /// Tasks of `of` that wait for `kind`.
    #[must_use]
    pub const fn new(of: StallOf, kind: StallKind) -> Self {
        Self { of, kind }
    }
}

/// Whose tasks wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum StallOf {
    /// All of the node.
    Node,
    /// Those below the pods cgroup.
    Pods,
}

impl StallOf {
    /// For log fields and metric labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Pods => "pods",
        }
    }
}

/// What tasks wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum StallKind {
    /// Memory: reclaim, refaults, swap.
    Memory,
    /// A disk.
    Io,
}

impl StallKind {
    /// The file's name under `/proc/pressure`, and the part before `.pressure` in a cgroup.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Io => "io",
        }
    }
}

/// One look at one signal. The unit is the signal's: bytes, inodes or pids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    /// What was looked at.
    pub signal: Signal,
    /// What is left. Negative where a cgroup is above its limit.
    pub available: i64,
    /// All there is.
    pub capacity: u64,
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
}

impl Disk {
    /// At most this many are listed and watched. The kernel's own window table holds no more.
    pub const MAX: usize = 256;

    /// Whether a disk is left out of the list for its name alone: drivers that pass requests on to
    /// other disks or to memory, and removable media.
    #[must_use]
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

/// What does not change while the machine is up, read once at start.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Machine {
    /// `/etc/machine-id`, else `/var/lib/dbus/machine-id`, trimmed; empty without either.
    pub machine_id: String,
    /// `/sys/class/dmi/id/product_uuid` and its kin; empty on failure.
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
    /// Each huge page size that the kernel offers, and how many pages of it are set aside.
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

/// What the node's addresses are chosen from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Network {
    /// Every address of every interface, in the kernel's order.
    pub addresses: Vec<InterfaceAddress>,
    /// Interfaces holding an IPv4 default route, from `/proc/net/route`. `None`: no such file.
    pub default_v4: Option<Vec<String>>,
    /// Interfaces holding an IPv6 default route, from `/proc/net/ipv6_route`.
    pub default_v6: Vec<String>,
    /// What DNS says of the node's own name, in the resolver's order.
    pub resolved: Vec<IpAddr>,
}
