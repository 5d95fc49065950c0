//! Decides how the last boot ended, from the records of the ring and the traces that the kernel and
//! the firmware left.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::{Readings, Record};
use crate::clock::{BootNanos, Now};
use crate::escape::escape;
use crate::incident::{BootId, Occurred};

/// Characters of the line of a panic that are kept.
const LINE: usize = 200;

/// The time before the last record that is reported.
const REPORTED: Duration = Duration::from_mins(10);
const MINUTE: u64 = 60;
/// File systems store times in whole seconds.
const ROUNDING: Duration = Duration::from_secs(2);
/// The agent may have been dead when a boot ended this long after its last record.
const LONG: Duration = Duration::from_mins(15);
/// What the kernel writes before it halts.
const PANIC: &str = "Kernel panic - not syncing";
/// What it writes about an error that the processor reports.
const HARDWARE_ERROR: &str = "mce: [Hardware Error]: CPU ";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum End {
    /// A shutdown had begun.
    Shutdown,
    KernelPanic,
    /// A panic because of an error that the hardware reported.
    MachineCheck,
    /// A watchdog reset the machine.
    Watchdog,
    /// The agent had stopped before.
    NotObserved,
    /// There is no trace of any other end.
    PowerLossOrReset,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Certainty {
    /// There is positive evidence.
    Certain,
    /// Other ends would have left a trace, or there is weaker evidence.
    Likely,
    /// Another end may have left no trace.
    Possible,
}

/// A file of the kernel or of a crash kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenFile {
    pub path: String,
    /// Time of the last change.
    pub at: SystemTime,
    /// Its content, if that is read.
    pub text: String,
}

/// The traces of the end of a boot that are not in the ring.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Evidence {
    /// The kernel keeps its log if it panics.
    pub has_pstore: bool,
    /// The logs that it kept.
    pub logs: Vec<WrittenFile>,
    /// What a crash kernel has written.
    pub crashes: Vec<WrittenFile>,
    /// The watchdogs that have reset the machine.
    pub watchdogs: Vec<String>,
}

/// What was read within one minute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Minute {
    /// Whole minutes from here to the last record.
    pub before: u64,
    pub readings: Readings,
}

/// How the last boot of the machine ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BootEnd {
    /// Id of the boot that ended.
    pub boot: String,
    pub end: End,
    pub certainty: Certainty,
    /// Sentences without a full stop, for people, the most important first.
    pub evidence: Vec<String>,
    /// The last ten minutes, the oldest first.
    pub minutes: Vec<Minute>,
}

impl BootEnd {
    pub const fn is_unclean(&self) -> bool {
        match self.end {
            End::Shutdown | End::NotObserved => false,
            End::KernelPanic | End::MachineCheck | End::Watchdog | End::PowerLossOrReset => true,
        }
    }

    /// Returns everything that was read in the last ten minutes.
    pub fn readings(&self) -> Readings {
        let mut all = Readings::default();
        for minute in &self.minutes {
            all.add(&minute.readings);
        }
        all
    }
}

/// Returns the number of the next record of a ring.
pub fn next_number(records: &[Record]) -> u64 {
    let newest = records.iter().map(|record| record.number).max();
    newest.unwrap_or(0).saturating_add(1)
}

/// The records of the last boot.
#[derive(Debug, Clone)]
pub struct LastBoot {
    last: Record,
    minutes: Vec<Minute>,
}

impl LastBoot {
    /// Returns `None` if an agent has made a record in this boot, or none on this machine before.
    /// `records` are in their order.
    pub fn find(records: &[Record], machine: u64, boot: BootId) -> Option<Self> {
        let is_here = |record: &&Record| record.origin.machine == machine;
        let last = records.iter().rev().find(is_here)?;
        if last.origin.boot == boot {
            return None;
        }
        let is_late = |record: &&Record| {
            record.origin.machine == machine
                && record.origin.boot == last.origin.boot
                && last.at.boot.since(record.at.boot) < REPORTED
        };
        let mut minutes: Vec<Minute> = Vec::new();
        for record in records.iter().filter(is_late) {
            let before = last.at.boot.since(record.at.boot).as_secs() / MINUTE;
            match minutes.last_mut() {
                Some(minute) if minute.before == before => minute.readings.add(&record.readings),
                _ => minutes.push(Minute {
                    before,
                    readings: record.readings.clone(),
                }),
            }
        }
        Some(Self {
            last: last.clone(),
            minutes,
        })
    }

    /// Decides how the boot ended. `now`: a time in the boot that followed.
    pub fn end(self, evidence: &Evidence, now: Now) -> Occurred {
        let mut sentences = Vec::new();
        let booted = now.wall_at(BootNanos(0));
        // `None` if the clock was set back.
        let gap = booted.duration_since(self.last.at.wall).ok();
        let panic = self.panic(evidence, (now, gap.is_none()), &mut sentences);
        for name in &evidence.watchdogs {
            let name = escape(name);
            sentences.push(format!("{name} reports that it has reset the machine"));
        }
        let marks = self.last.marks;
        if marks.shutdown {
            sentences.push("a shutdown had begun".to_owned());
        }
        if marks.agent_stopped {
            sentences.push("the agent had stopped before".to_owned());
        }
        let (end, certainty) = match panic {
            Some(panic) => panic,
            None if marks.shutdown => (End::Shutdown, Certainty::Likely),
            None if !evidence.watchdogs.is_empty() => (End::Watchdog, Certainty::Certain),
            None if marks.agent_stopped => (End::NotObserved, Certainty::Certain),
            None => {
                sentences.push("no shutdown, panic or watchdog reset was recorded".to_owned());
                if !evidence.has_pstore {
                    let why = "a kernel panic would have left no trace, since no pstore is visible";
                    sentences.push(why.to_owned());
                }
                let is_sure = evidence.has_pstore && gap.is_some_and(|gap| gap < LONG);
                let certainty = if is_sure {
                    Certainty::Likely
                } else {
                    Certainty::Possible
                };
                (End::PowerLossOrReset, certainty)
            }
        };
        sentences.push(match gap {
            Some(gap) => {
                let seconds = gap.as_secs();
                format!("the next boot began {seconds} s after the last record")
            }
            None => "the clock was set back since the last record".to_owned(),
        });
        let end = BootEnd {
            boot: self.last.origin.boot.to_string(),
            end,
            certainty,
            evidence: sentences,
            minutes: self.minutes,
        };
        Occurred::boot(end, self.last.at.wall, booted)
    }

    fn panic(
        &self,
        evidence: &Evidence,
        (now, is_set_back): (Now, bool),
        sentences: &mut Vec<String>,
    ) -> Option<(End, Certainty)> {
        let since = self.last.at.wall.checked_sub(ROUNDING);
        let since = since.unwrap_or(SystemTime::UNIX_EPOCH);
        let is_newer = |file: &&WrittenFile| since <= file.at && file.at <= now.wall;
        let last = self.last.at.boot.since(BootNanos(0)).as_secs();
        let end = last.saturating_sub(ROUNDING.as_secs())..=last.saturating_add(2 * MINUTE);
        let marks = self.last.marks;
        // With a clock that was set back, only the times in a log can be compared.
        let by_lines = is_set_back && !marks.shutdown && !marks.agent_stopped;
        let is_of_end = |log: &&WrittenFile| {
            by_lines && seconds_since_boot(&log.text).is_some_and(|at| end.contains(&at))
        };
        let logs = evidence.logs.iter();
        for log in logs.filter(|log| is_newer(log) || is_of_end(log)) {
            let Some((_, from)) = log.text.split_once(PANIC) else {
                continue;
            };
            let line = from.lines().next().unwrap_or_default();
            let line: String = line.trim_end().chars().take(LINE).collect();
            let line = escape(format!("{PANIC}{line}"));
            sentences.push(format!("{}: {line}", escape(&log.path)));
            let is_of_hardware =
                line.to_lowercase().contains("machine check") || log.text.contains(HARDWARE_ERROR);
            // An old log, copied since, can be of an earlier time after its boot.
            let certainty = match seconds_since_boot(&log.text) {
                _ if !is_newer(&log) => Certainty::Likely,
                Some(at) if at.saturating_add(MINUTE) < last => Certainty::Possible,
                Some(_) => Certainty::Certain,
                None => Certainty::Likely,
            };
            let end = if is_of_hardware {
                End::MachineCheck
            } else {
                End::KernelPanic
            };
            return Some((end, certainty));
        }
        let crash = evidence.crashes.iter().find(is_newer)?;
        let path = escape(&crash.path);
        sentences.push(format!("{path} was written after the last record"));
        Some((End::KernelPanic, Certainty::Likely))
    }
}

/// Returns the time of the last line of the kernel's log that has one: `<4>[  123.456789] …`.
fn seconds_since_boot(log: &str) -> Option<u64> {
    let time = |line: &str| {
        let (_, rest) = line.split_once('[')?;
        let (seconds, _) = rest.split_once('.')?;
        seconds.trim_start().parse().ok()
    };
    log.lines().rev().find_map(time)
}
