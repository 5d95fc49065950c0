//! PURE: the black box. What the agent reads is kept in a ring of records that outlives the
//! machine, and the first start after a boot decides from it how the last boot ended.
//!
//! ```text
//! samples ──► Recorder ──► Record ──► slot of the ring        before the boot
//! ring ──► LastBoot ──► BootEnd ──► Occurrence::Boot          after it
//! pstore, watchdogs ──┘
//! ```

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::checked_line::checksum;
use crate::clock::{BootNanos, Now};
use crate::escape::escape;
use crate::incident::BootId;
use crate::kube_event::DiskTrouble;
use crate::reading::{Signal, StallKind};

mod gap;
mod last_boot;
mod recorder;
#[cfg(test)]
pub(crate) mod tests;
mod words;

pub use gap::{AgentGap, LastAgent};
pub use last_boot::{
    BootEnd, Certainty, End, Evidence, LastBoot, Minute, WrittenFile, next_number,
};
pub use recorder::{Batch, Observed, Recorder};
pub use words::UNCLEAN_REBOOT;

/// Bytes of a record.
pub const RECORD: usize = 256;
/// Records of the ring: 21 minutes of one per five seconds.
pub const SLOTS: u64 = 256;
/// Bytes of the ring.
pub const RING: usize = 64 << 10;

/// Disks that a record names.
const DISKS: usize = 3;
/// Bytes of the name of a disk. A longer one is cut.
const DISK_NAME: usize = 15;
const MAGIC: [u8; 4] = *b"npb1";
/// A value that was not read.
const NONE: u8 = u8::MAX;

/// Returns the offset of a record in the ring.
pub const fn offset(number: u64) -> u64 {
    (number % SLOTS) * 256
}

/// Returns the checksum of a machine id, by which a copied disk is recognised.
pub fn machine(id: &str) -> u64 {
    let step = |sum: u64, byte: u8| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    id.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

/// The start of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// See [`machine`].
    pub machine: u64,
    pub boot: BootId,
    /// Random.
    pub tag: u64,
}

/// The state of the machine and the agent at a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Marks {
    /// logind has announced a shutdown, and has not cancelled it.
    pub shutdown: bool,
    /// It is the last record of an agent that stopped in order.
    pub agent_stopped: bool,
}

/// The values of a signal, in its unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Range {
    pub lowest: i64,
    pub highest: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UnhealthyDisk {
    /// As in `/sys/block`, at most 15 bytes of it.
    pub name: String,
    pub health: DiskTrouble,
}

/// What was read within some time.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Readings {
    /// By the names of the signals.
    pub signals: BTreeMap<String, Range>,
    /// The highest share of time in percent, over ten seconds, in which tasks waited for `memory`
    /// and for `io`.
    pub stalls: BTreeMap<String, u8>,
    /// Processes that were OOM-killed.
    pub kills: u32,
    /// The unhealthy disks, at most three, the worst first.
    pub disks: Vec<UnhealthyDisk>,
    /// The number of further ones.
    pub others: u8,
}

impl Readings {
    /// Adds what was read later.
    pub fn add(&mut self, later: &Self) {
        for (signal, range) in &later.signals {
            self.add_signal(signal, *range);
        }
        for (kind, share) in &later.stalls {
            self.add_stall(kind, *share);
        }
        self.kills = self.kills.saturating_add(later.kills);
        self.others = self.others.max(later.others);
        for disk in &later.disks {
            self.add_disk(disk.clone());
        }
    }

    fn add_signal(&mut self, signal: &str, later: Range) {
        let range = self.signals.entry(signal.to_owned()).or_insert(later);
        range.lowest = range.lowest.min(later.lowest);
        range.highest = range.highest.max(later.highest);
    }

    fn add_stall(&mut self, kind: &str, share: u8) {
        let highest = self.stalls.entry(kind.to_owned()).or_default();
        *highest = share.max(*highest);
    }

    fn add_disk(&mut self, disk: UnhealthyDisk) {
        if self.disks.contains(&disk) {
            return;
        }
        if self.disks.len() < DISKS {
            self.disks.push(disk);
        } else {
            self.others = self.others.saturating_add(1);
        }
    }
}

/// One record of the ring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// From 1 on. Grows over starts and boots.
    pub number: u64,
    pub origin: Origin,
    pub at: Now,
    pub marks: Marks,
    pub readings: Readings,
    /// The number of the newest incident.
    pub newest: Option<u64>,
}

/// The form on the disk, in the byte order of the machine: no other one reads it.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Slot {
    magic: [u8; 4],
    /// Of the whole with zero here.
    checksum: u32,
    number: u64,
    machine: u64,
    boot: [u64; 2],
    tag: u64,
    since_boot: u64,
    /// Nanoseconds since 1970.
    wall: u64,
    /// Zero for none.
    newest: u64,
    /// By the order of [`Signal::ALL`]; the lowest is above the highest if it was not read.
    signals: [[i64; 2]; 8],
    kills: u32,
    marks: u8,
    /// By the order of [`STALLS`].
    stalls: [u8; 2],
    others: u8,
    /// The kind of trouble, or zero, and the name.
    disks: [[u8; DISK_NAME + 1]; DISKS],
}

/// Names of [`StallKind`].
const STALLS: [&str; 2] = [StallKind::Memory.as_str(), StallKind::Io.as_str()];

const SHUTDOWN: u8 = 1;
const AGENT_STOPPED: u8 = 2;

impl Record {
    pub fn encode(&self) -> [u8; RECORD] {
        let readings = &self.readings;
        let wall = self.at.wall.duration_since(SystemTime::UNIX_EPOCH);
        let wall = wall.unwrap_or_default().as_nanos();
        let boot: (u64, u64) = self.origin.boot.into();
        let signal = |signal: Signal| {
            let range = readings.signals.get(signal.as_str());
            range.map_or([i64::MAX, i64::MIN], |one| [one.lowest, one.highest])
        };
        let mut disks = [[0; DISK_NAME + 1]; DISKS];
        for (slot, disk) in disks.iter_mut().zip(&readings.disks) {
            let text = [kind(disk.health)].into_iter().chain(disk.name.bytes());
            slot.iter_mut().zip(text).for_each(|(at, byte)| *at = byte);
        }
        let mut slot = Slot {
            magic: MAGIC,
            checksum: 0,
            number: self.number,
            machine: self.origin.machine,
            boot: [boot.0, boot.1],
            tag: self.origin.tag,
            since_boot: self.at.boot.0,
            wall: u64::try_from(wall).unwrap_or(u64::MAX),
            newest: self.newest.unwrap_or(0),
            signals: Signal::ALL.map(signal),
            kills: readings.kills,
            marks: u8::from(self.marks.shutdown) * SHUTDOWN
                + u8::from(self.marks.agent_stopped) * AGENT_STOPPED,
            stalls: STALLS.map(|kind| readings.stalls.get(kind).map_or(NONE, |share| *share)),
            others: readings.others,
            disks,
        };
        slot.checksum = checksum(slot.as_bytes());
        zerocopy::transmute!(slot)
    }

    /// Returns `None` for anything but a whole record.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut slot = Slot::read_from_bytes(bytes).ok()?;
        let sum = std::mem::take(&mut slot.checksum);
        if slot.magic != MAGIC || sum != checksum(slot.as_bytes()) {
            return None;
        }
        let [high, low] = slot.boot;
        let stalls = STALLS.into_iter().zip(slot.stalls);
        let stalls = stalls.filter(|(_, share)| *share != NONE);
        let signals = Signal::ALL.into_iter().zip(slot.signals);
        Some(Self {
            number: slot.number,
            origin: Origin {
                machine: slot.machine,
                boot: BootId::from((high, low)),
                tag: slot.tag,
            },
            at: Now {
                boot: BootNanos(slot.since_boot),
                // Nanoseconds in 64 bits end in 2554.
                wall: SystemTime::UNIX_EPOCH + Duration::from_nanos(slot.wall),
            },
            marks: Marks {
                shutdown: slot.marks & SHUTDOWN != 0,
                agent_stopped: slot.marks & AGENT_STOPPED != 0,
            },
            readings: Readings {
                signals: signals
                    .filter(|(_, [lowest, highest])| lowest <= highest)
                    .map(|(signal, [lowest, highest])| {
                        (signal.as_str().to_owned(), Range { lowest, highest })
                    })
                    .collect(),
                stalls: stalls
                    .map(|(kind, share)| (kind.to_owned(), share))
                    .collect(),
                kills: slot.kills,
                disks: slot.disks.iter().filter_map(|disk| named(disk)).collect(),
                others: slot.others,
            },
            newest: (slot.newest != 0).then_some(slot.newest),
        })
    }

    /// Returns the records of a ring, the oldest first. What is no whole record is left out.
    pub fn decode_ring(ring: &[u8]) -> Vec<Self> {
        let mut records: Vec<Self> = ring.chunks(RECORD).filter_map(Self::decode).collect();
        records.sort_by_key(|record| record.number);
        records
    }
}

const fn kind(trouble: DiskTrouble) -> u8 {
    match trouble {
        DiskTrouble::Stalled => 1,
        DiskTrouble::Errors => 2,
        DiskTrouble::Slow => 3,
    }
}

fn named(disk: &[u8]) -> Option<UnhealthyDisk> {
    let (first, name) = disk.split_first()?;
    let all = [DiskTrouble::Stalled, DiskTrouble::Errors, DiskTrouble::Slow];
    let health = all.into_iter().find(|health| kind(*health) == *first)?;
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    let name = escape(name);
    Some(UnhealthyDisk { name, health })
}
