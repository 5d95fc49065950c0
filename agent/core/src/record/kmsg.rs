//! Records of `/dev/kmsg` → OOM kills, if no program reports them.
//!
//! A kill is logged as several records: the trigger, the scope, the victim. The kernel writes them
//! under one lock, so those of two kills do not interleave. After ten kills in 5 s it suppresses
//! the first two; the third is always written.
//!
//! Two cases are ambiguous: a later member of a killed group and an unrelated kill whose first two
//! records were suppressed; a process name with `,task=` in it and the end of a cgroup path.

use serde::{Deserialize, Serialize};

use super::{OomConstraint, OomScope};
use crate::clock::BootNanos;
use crate::units::{Bytes, Pid};

mod line;

use line::{Invoked, KillLine, Killed, Summary, record};

/// Kills kept until the next [`KmsgParser::take`], which the reader calls far more often.
const MOST: usize = 256;

/// A process that the kernel OOM-killed, from the kernel log. All text is untrusted bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedKill {
    pub at: BootNanos,
    /// The victim; the thread that the kernel names, if it has several.
    pub victim: Pid,
    pub comm: Vec<u8>,
    /// User id, in the initial user namespace.
    pub uid: Option<u32>,
    /// Path of its memory cgroup from the top of the hierarchy.
    pub cgroup: Option<Vec<u8>>,
    /// Path of the cgroup that the kernel kills as a whole (`memory.oom.group`). `None` also if
    /// that line came later than the kill was taken.
    pub group: Option<Vec<u8>>,
    /// What ran out; the path of the cgroup if the log names it. Never [`OomScope::Unknown`].
    pub scope: OomScope<Option<Vec<u8>>>,
    pub constraint: Option<OomConstraint>,
    /// Order of the allocation; -1 for sysrq, otherwise indistinguishable from a global kill.
    pub order: Option<i32>,
    /// Name of the process whose allocation failed.
    pub trigger: Option<Vec<u8>>,
    /// Resident memory: anonymous, file, shared.
    pub resident: Option<[Bytes; 3]>,
}

#[derive(Debug, Default)]
pub struct KmsgParser {
    state: Progress,
    /// Each with its printk time in microseconds.
    kills: Vec<(u64, LoggedKill)>,
    newest: u64,
    losses: u64,
}

#[derive(Debug, Default)]
enum Progress {
    #[default]
    Idle,
    Invoked(Invoked),
    /// Scope and time are known; the line with the victim is missing.
    Summarised(u64, Box<LoggedKill>),
    /// As above, but the line was cut before the victim.
    Unnamed(Box<LoggedKill>),
    /// Reported without its last line, which may still follow.
    ReportedEarly(Box<LoggedKill>),
    /// Complete; a line about a group kill may follow.
    Complete(Box<LoggedKill>),
    /// The fields that members of a killed group share.
    Group(Box<LoggedKill>),
}

impl KmsgParser {
    /// Parses one record. Records of other topics or from user space are ignored.
    pub fn record(&mut self, bytes: &[u8]) {
        let Some(record) = record(bytes) else {
            return;
        };
        self.newest = record.usec;
        let Some(line) = record.line() else {
            return;
        };
        self.state = match (std::mem::take(&mut self.state), line) {
            (before, KillLine::Invoked(invoked)) => {
                self.state = before;
                self.flush();
                Progress::Invoked(invoked)
            }
            (before, KillLine::Summary(summary)) => summarised(before, record.usec, summary),
            (before, KillLine::Killed(killed)) => self.killed(before, record.usec, killed),
            (Progress::Complete(kill), KillLine::Group(path)) => {
                let first = self.kills.last_mut();
                if let Some((_, first)) = first.filter(|(_, last)| last.victim == kill.victim) {
                    first.group = Some(path.clone());
                }
                Progress::Group(Box::new(group(*kill, path)))
            }
            (_, KillLine::Exiting | KillLine::Group(_)) => Progress::Idle,
        };
    }

    /// Call it when records were overwritten before they were read: the current kill stays
    /// incomplete. Returns the number of such losses.
    pub fn lost(&mut self) -> u64 {
        self.flush();
        self.state = Progress::Idle;
        self.losses += 1;
        self.losses
    }

    /// Whether the last line of a kill is still missing.
    pub fn is_incomplete(&self) -> bool {
        matches!(self.state, Progress::Summarised(..) | Progress::Unnamed(_))
    }

    /// Whether no more kills can be kept; call [`KmsgParser::take`].
    pub fn is_full(&self) -> bool {
        self.kills.len() >= MOST
    }

    /// Takes the kills, once all log records are read. An incomplete kill has no memory sizes.
    ///
    /// printk's clock stops in suspend and drifts by seconds in weeks. Therefore only differences
    /// are used, and the newest record gets the time of the read.
    pub fn take(&mut self, read: BootNanos) -> Vec<LoggedKill> {
        self.flush();
        let newest = self.newest;
        let at = |usec| {
            let age: u64 = newest.saturating_sub(usec);
            BootNanos(read.0.saturating_sub(age.saturating_mul(1000)))
        };
        let kills = std::mem::take(&mut self.kills).into_iter();
        kills
            .map(|(usec, kill)| LoggedKill {
                at: at(usec),
                ..kill
            })
            .collect()
    }

    fn flush(&mut self) {
        self.state = match std::mem::take(&mut self.state) {
            Progress::Summarised(usec, kill) => {
                self.kills.push((usec, (*kill).clone()));
                Progress::ReportedEarly(kill)
            }
            other => other,
        };
    }

    fn killed(&mut self, before: Progress, usec: u64, line: Killed) -> Progress {
        let pid = line.pid;
        match before {
            // Already reported.
            Progress::ReportedEarly(known) => Progress::Complete(Box::new(known.finished(line))),
            // The first victim is logged again as a member of its group, and counted again.
            Progress::Group(known) if known.victim == pid => Progress::Group(known),
            Progress::Group(known) => {
                self.kills.push((usec, known.clone().finished(line)));
                Progress::Group(known)
            }
            Progress::Summarised(_, known) | Progress::Unnamed(known) => {
                let kill = known.finished(line);
                self.kills.push((usec, kill.clone()));
                Progress::Complete(Box::new(kill))
            }
            Progress::Idle | Progress::Invoked(_) | Progress::Complete(_) => {
                let kill = LoggedKill::bare(&line).finished(line);
                self.kills.push((usec, kill.clone()));
                Progress::Complete(Box::new(kill))
            }
        }
    }
}

fn summarised(before: Progress, usec: u64, summary: Summary) -> Progress {
    let (trigger, order) = match before {
        Progress::Invoked(invoked) => (Some(invoked.comm), invoked.order),
        _ => (None, None),
    };
    let scope = match summary.constraint {
        OomConstraint::Memcg => OomScope::Memcg(summary.limiting),
        OomConstraint::None | OomConstraint::Cpuset | OomConstraint::MemoryPolicy => {
            OomScope::Global
        }
    };
    let named = summary.victim.is_some();
    let (victim, comm, uid) = match summary.victim {
        Some(victim) => (victim.pid, victim.comm, Some(victim.uid)),
        None => (Pid(0), Vec::new(), None),
    };
    let kill = Box::new(LoggedKill {
        at: BootNanos(0),
        victim,
        comm,
        uid,
        cgroup: summary.cgroup,
        group: None,
        scope,
        constraint: Some(summary.constraint),
        order,
        trigger,
        resident: None,
    });
    if named {
        Progress::Summarised(usec, kill)
    } else {
        Progress::Unnamed(kill)
    }
}

/// The fields that other members of the group share with the first victim. Members are in the
/// cgroup of the group or below it.
fn group(first: LoggedKill, path: Vec<u8>) -> LoggedKill {
    LoggedKill {
        cgroup: Some(path.clone()),
        group: Some(path),
        uid: None,
        ..first
    }
}

impl LoggedKill {
    /// From the last line alone.
    fn bare(line: &Killed) -> Self {
        Self {
            at: BootNanos(0),
            victim: line.pid,
            comm: Vec::new(),
            uid: None,
            cgroup: None,
            group: None,
            scope: if line.memcg {
                OomScope::Memcg(None)
            } else {
                OomScope::Global
            },
            constraint: line.memcg.then_some(OomConstraint::Memcg),
            order: None,
            trigger: None,
            resident: None,
        }
    }

    fn finished(self, line: Killed) -> Self {
        Self {
            victim: line.pid,
            comm: line.comm,
            uid: line.uid.or(self.uid),
            resident: line.resident,
            ..self
        }
    }
}

#[cfg(test)]
mod tests;
