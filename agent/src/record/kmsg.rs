//! Records of `/dev/kmsg` → kills, where no program tells of them.
//!
//! One kill is several records: who asked for memory, what ran out, who was killed. The kernel
//! writes them under one lock, so they do not mix with those of another kill. After ten kills in
//! 5 s it holds the first two back; the third it always writes.
//!
//! What cannot be told apart: a member of a group that is killed, and a kill elsewhere that follows
//! with its first two records held back. And in a process name with `,task=` in it, what belongs to
//! the name and what to the last name of the cgroup's path.

use serde::{Deserialize, Serialize};

use super::{OomConstraint, OomScope};
use crate::clock::BootNanos;
use crate::units::{Bytes, Pid};

mod line;

use line::{Invoked, Killed, Line, Summary, record};

/// Kills that are kept between two looks; the reader looks far more often.
const MOST: usize = 256;

/// One process that the kernel killed for want of memory, as its log tells. All text is raw bytes
/// that a tenant may have chosen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedKill {
    /// When it was written.
    pub at: BootNanos,
    /// The victim; of several threads the one that the kernel names.
    pub victim: Pid,
    /// Its name.
    pub comm: Vec<u8>,
    /// User id, in the initial user namespace.
    pub uid: Option<u32>,
    /// Path of its memory cgroup from the top of the hierarchy.
    pub cgroup: Option<Vec<u8>>,
    /// What ran out; the path of the cgroup if the log names it. Never [`OomScope::Unknown`].
    pub scope: OomScope<Option<Vec<u8>>>,
    /// What bounded the allocation.
    pub constraint: Option<OomConstraint>,
    /// Order of the allocation; -1 for sysrq, which the other lines do not tell from a global kill.
    pub order: Option<i32>,
    /// Name of the process that asked for the memory.
    pub trigger: Option<Vec<u8>>,
    /// Its resident memory: anonymous, file, shared.
    pub resident: Option<[Bytes; 3]>,
}

/// Puts the lines together.
#[derive(Debug, Default)]
pub struct KmsgParser {
    now: Told,
    /// Each with its microsecond.
    kills: Vec<(u64, LoggedKill)>,
    newest: u64,
    losses: u64,
}

/// What was told last of the kill that is being told.
#[derive(Debug, Default)]
enum Told {
    #[default]
    Nothing,
    /// Who asked for memory.
    Invoked(Invoked),
    /// What ran out, and when that was written; not yet who was killed.
    Half(u64, Box<LoggedKill>),
    /// The same without even a name: the line was cut.
    Unnamed(Box<LoggedKill>),
    /// Passed on without its last line, which is still to come.
    Early(Box<LoggedKill>),
    /// All of it; whether a whole group goes is still to come.
    Whole(Box<LoggedKill>),
    /// What the members of a group that is being killed have in common.
    Group(Box<LoggedKill>),
}

impl KmsgParser {
    /// Takes one record. Whatever is not about a kill, or was not written by the kernel, is nothing.
    pub fn record(&mut self, bytes: &[u8]) {
        let Some(record) = record(bytes) else {
            return;
        };
        self.newest = record.usec;
        let Some(line) = record.line() else {
            return;
        };
        self.now = match (std::mem::take(&mut self.now), line) {
            (before, Line::Invoked(invoked)) => {
                self.now = before;
                self.flush();
                Told::Invoked(invoked)
            }
            (before, Line::Summary(summary)) => half(before, record.usec, summary),
            (before, Line::Killed(killed)) => self.killed(before, record.usec, killed),
            (Told::Whole(kill), Line::Group(path)) => Told::Group(Box::new(group(*kill, path))),
            (_, Line::Exiting | Line::Group(_)) => Told::Nothing,
        };
    }

    /// What was told so far has no end: records were overwritten before they were read. How often
    /// that has been.
    pub fn lost(&mut self) -> u64 {
        self.flush();
        self.now = Told::Nothing;
        self.losses += 1;
        self.losses
    }

    /// Whether a kill was announced whose last line is still to come.
    #[must_use]
    pub fn is_incomplete(&self) -> bool {
        matches!(self.now, Told::Half(..) | Told::Unnamed(_))
    }

    /// Whether there are as many kills as are kept: [`KmsgParser::take`] them.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.kills.len() >= MOST
    }

    /// The kills so far, at a moment when the log has no newer record. One that is half told is told
    /// without its memory.
    ///
    /// printk's clock stands still in suspend and nothing disciplines it: after weeks it is seconds
    /// off. So only differences on it count, and the newest record is as old as its reading.
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
        self.now = match std::mem::take(&mut self.now) {
            Told::Half(usec, kill) => {
                self.kills.push((usec, (*kill).clone()));
                Told::Early(kill)
            }
            other => other,
        };
    }

    fn killed(&mut self, before: Told, usec: u64, line: Killed) -> Told {
        let pid = line.pid;
        match before {
            // It is told already.
            Told::Early(known) => Told::Whole(Box::new(known.finished(line))),
            // The first victim is killed once more with its group.
            Told::Group(known) if known.victim == pid => Told::Group(known),
            Told::Group(known) => {
                self.kills.push((usec, known.clone().finished(line)));
                Told::Group(known)
            }
            Told::Half(_, known) | Told::Unnamed(known) => {
                let kill = known.finished(line);
                self.kills.push((usec, kill.clone()));
                Told::Whole(Box::new(kill))
            }
            Told::Nothing | Told::Invoked(_) | Told::Whole(_) => {
                let kill = LoggedKill::bare(&line).finished(line);
                self.kills.push((usec, kill.clone()));
                Told::Whole(Box::new(kill))
            }
        }
    }
}

fn half(before: Told, usec: u64, summary: Summary) -> Told {
    let (trigger, order) = match before {
        Told::Invoked(invoked) => (Some(invoked.comm), invoked.order),
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
        scope,
        constraint: Some(summary.constraint),
        order,
        trigger,
        resident: None,
    });
    if named {
        Told::Half(usec, kill)
    } else {
        Told::Unnamed(kill)
    }
}

/// What the other members have in common with the first victim. They are in the group's cgroup or
/// below it.
fn group(first: LoggedKill, path: Vec<u8>) -> LoggedKill {
    LoggedKill {
        cgroup: Some(path),
        uid: None,
        ..first
    }
}

impl LoggedKill {
    /// By its last line alone.
    fn bare(line: &Killed) -> Self {
        Self {
            at: BootNanos(0),
            victim: line.pid,
            comm: Vec::new(),
            uid: None,
            cgroup: None,
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

    /// With what its last line tells.
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
