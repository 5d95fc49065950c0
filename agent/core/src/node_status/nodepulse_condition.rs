//! The conditions that only nodepulse writes: companion mode writes no others, and `cleanup`
//! removes no others.

use crate::reading::{Resource, Stall, StallKind, StallOf};

/// A condition that no kubelet writes. True means that there is a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodepulseCondition {
    MemoryLow,
    PidsLow,
    DiskSpaceLow,
    /// Node mode writes it, too.
    DiskIoPressure,
    /// Node mode writes it, too.
    DiskFailing,
    FrequentOomKills,
    MemoryStallPressure,
    DiskStallPressure,
    PodsMemoryStallPressure,
    PodsDiskStallPressure,
}

impl NodepulseCondition {
    /// In the order in which companion mode writes them.
    pub const ALL: [Self; 10] = [
        Self::MemoryLow,
        Self::PidsLow,
        Self::DiskSpaceLow,
        Self::DiskIoPressure,
        Self::DiskFailing,
        Self::FrequentOomKills,
        Self::MemoryStallPressure,
        Self::DiskStallPressure,
        Self::PodsMemoryStallPressure,
        Self::PodsDiskStallPressure,
    ];

    pub const fn type_(self) -> &'static str {
        match self {
            Self::MemoryLow => "MemoryLow",
            Self::PidsLow => "PIDsLow",
            Self::DiskSpaceLow => "DiskSpaceLow",
            Self::DiskIoPressure => "DiskIOPressure",
            Self::DiskFailing => "DiskFailing",
            Self::FrequentOomKills => "FrequentOOMKills",
            Self::MemoryStallPressure => "MemoryStallPressure",
            Self::DiskStallPressure => "DiskStallPressure",
            Self::PodsMemoryStallPressure => "PodsMemoryStallPressure",
            Self::PodsDiskStallPressure => "PodsDiskStallPressure",
        }
    }

    pub const fn taint_key(self) -> &'static str {
        match self {
            Self::MemoryLow => concat!(domain!(), "/memory-low"),
            Self::PidsLow => concat!(domain!(), "/pids-low"),
            Self::DiskSpaceLow => concat!(domain!(), "/disk-space-low"),
            Self::DiskIoPressure => concat!(domain!(), "/disk-io-pressure"),
            Self::DiskFailing => concat!(domain!(), "/disk-failing"),
            Self::FrequentOomKills => concat!(domain!(), "/frequent-oom-kills"),
            Self::MemoryStallPressure => concat!(domain!(), "/memory-stall-pressure"),
            Self::DiskStallPressure => concat!(domain!(), "/disk-stall-pressure"),
            Self::PodsMemoryStallPressure => concat!(domain!(), "/pods-memory-stall-pressure"),
            Self::PodsDiskStallPressure => concat!(domain!(), "/pods-disk-stall-pressure"),
        }
    }

    /// `PIDsLow` is also about all pods' tasks.
    pub const fn resource(self) -> Option<Resource> {
        match self {
            Self::MemoryLow => Some(Resource::Memory),
            Self::PidsLow => Some(Resource::Pids),
            Self::DiskSpaceLow => Some(Resource::Disk),
            Self::DiskIoPressure => Some(Resource::DiskIo),
            Self::DiskFailing => Some(Resource::DiskFailing),
            Self::FrequentOomKills
            | Self::MemoryStallPressure
            | Self::DiskStallPressure
            | Self::PodsMemoryStallPressure
            | Self::PodsDiskStallPressure => None,
        }
    }

    /// The conditions that are off by default are True on nodes on which no pod suffers, or do not
    /// need an action of the node's operator.
    pub const fn is_on_by_default(self) -> bool {
        match self {
            Self::MemoryLow
            | Self::PidsLow
            | Self::DiskSpaceLow
            | Self::DiskIoPressure
            | Self::DiskFailing
            | Self::MemoryStallPressure => true,
            Self::FrequentOomKills
            | Self::DiskStallPressure
            | Self::PodsMemoryStallPressure
            | Self::PodsDiskStallPressure => false,
        }
    }

    /// Returns true if the taint may have the effect `NoExecute`, which evicts the pods that do not
    /// tolerate it: only if they cannot go on running here, or the kernel would kill them instead.
    pub const fn permits_no_execute(self) -> bool {
        matches!(self, Self::MemoryLow | Self::DiskFailing)
    }

    pub const fn stall(self) -> Option<Stall> {
        let (of, kind) = match self {
            Self::MemoryStallPressure => (StallOf::Node, StallKind::Memory),
            Self::DiskStallPressure => (StallOf::Node, StallKind::Io),
            Self::PodsMemoryStallPressure => (StallOf::Pods, StallKind::Memory),
            Self::PodsDiskStallPressure => (StallOf::Pods, StallKind::Io),
            Self::MemoryLow
            | Self::PidsLow
            | Self::DiskSpaceLow
            | Self::DiskIoPressure
            | Self::DiskFailing
            | Self::FrequentOomKills => return None,
        };
        Some(Stall::new(of, kind))
    }

    pub fn parse(type_: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|condition| condition.type_() == type_)
    }
}
