//! Finds the pods and cgroups that use a disk, and those that wait for it, in two snapshots of the
//! cgroups' `io.stat` and `io.pressure`.
//!
//! Tasks that wait for their own bulk transfer are not a sign of a slow disk: a deep queue of large
//! requests takes long on every disk. So the largest user does not count as waiting if it transfers
//! in bulk.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::pods::{Owner, Pod, PodId, is_within};
use crate::units::rate::Rate;
use crate::units::{Bytes, CgroupId};

/// The maximum number of users and of waiters that are named.
const NAMED: usize = 3;

/// The lead of the users in a text.
pub const USED_MOST: &str = "used most by ";

/// A user whose requests are larger than this on average transfers in bulk.
const BULK_REQUEST: Bytes = Bytes::from_kib(64);

/// A user that transfers more than this in a second does so in bulk, whatever the size of its
/// requests. A database on a disk that is limited to tens of requests a second stays below this.
const BULK_RATE: Bytes = Bytes::from_kib(4 << 10);

/// The share of time in which at least one task waited: `some` of a pressure file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct StallShare {
    hundredths: u16,
}

impl StallShare {
    /// Converts percent, as the kernel prints it. Values outside 0 to 100 become the nearest of
    /// these.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "limited before the cast"
    )]
    pub fn from_percent(percent: f32) -> Self {
        let percent = if percent.is_nan() { 0.0 } else { percent };
        Self {
            hundredths: (percent.clamp(0.0, 100.0) * 100.0).round() as u16,
        }
    }

    pub fn new(stalled: Duration, elapsed: Duration) -> Self {
        Self::from_percent(stalled.div_duration_f32(elapsed) * 100.0)
    }

    pub fn percent(self) -> f32 {
        f32::from(self.hundredths) / 100.0
    }
}

impl fmt::Display for StallShare {
    /// Writes `4.2%`; from 10% on without a decimal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hundredths = u32::from(self.hundredths);
        if hundredths < 995 {
            let tenths = (hundredths + 5) / 10;
            write!(f, "{}.{}%", tenths / 10, tenths % 10)
        } else {
            write!(f, "{}%", (hundredths + 50) / 100)
        }
    }
}

/// The result of reading a pressure file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StallRead {
    Share(StallShare),
    NoPsi,
    #[default]
    Failed,
}

/// The I/O wait of tasks other than the main user of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OthersStall {
    /// The longest wait of a cgroup, without the main user if that transfers in bulk. Without
    /// cgroups: the wait of the whole node.
    Share(StallShare),
    NoPsi,
    /// The cgroups could not be read this time.
    Unread {
        /// The wait of the whole node, if it could be read.
        node: Option<StallShare>,
    },
}

impl Default for OthersStall {
    fn default() -> Self {
        Self::Unread { node: None }
    }
}

impl From<StallRead> for OthersStall {
    fn from(node: StallRead) -> Self {
        match node {
            StallRead::Share(share) => Self::Share(share),
            StallRead::NoPsi => Self::NoPsi,
            StallRead::Failed => Self::default(),
        }
    }
}

/// The counters of a cgroup since it was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IoCounts {
    /// In bytes.
    pub read: u64,
    /// In bytes.
    pub written: u64,
    /// Reads and writes.
    pub requests: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupIo {
    pub owner: Owner,
    pub path: String,
    /// From `io.stat`. `None`: the io controller is not enabled for it.
    pub io: Option<IoCounts>,
    /// From `io.pressure`. `None`: the kernel has no PSI for it.
    pub stall: Option<StallShare>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IoSnapshot {
    /// Pods, and cgroups outside of pods with at most one level below them. Empty on cgroup v1.
    pub cgroups: BTreeMap<CgroupId, CgroupIo>,
    /// The I/O wait of the whole node.
    pub node: StallRead,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoUser {
    pub owner: Owner,
    /// Bytes per second.
    pub read: Bytes,
    /// Bytes per second.
    pub written: Bytes,
}

/// A pod or cgroup whose tasks wait.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoWaiter {
    pub owner: Owner,
    /// The share of the last ten seconds, for any disk.
    pub share: StallShare,
}

/// The pods and cgroups that use a disk, and those that wait for it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct IoWait {
    /// At most three users, sorted by bytes transferred, the largest first.
    pub users: Vec<IoUser>,
    /// At most three waiters, the longest wait first.
    pub waiters: Vec<IoWaiter>,
    pub others: OthersStall,
}

/// The difference between two snapshots of a cgroup.
struct Transfer<'a> {
    cgroup: &'a CgroupIo,
    io: IoCounts,
}

impl IoWait {
    /// Compares two snapshots, `elapsed` apart. A cgroup that is in one of them only is not a user:
    /// it was created or removed in between.
    pub fn between(before: &IoSnapshot, after: &IoSnapshot, elapsed: Duration) -> Self {
        let transfers = transfers(before, after);
        let waiting = leaves(&after.cgroups, |of| of.stall.map(|_| &of.path));
        let waiting = waiting.filter_map(|(_, cgroup)| {
            let share = cgroup.stall.filter(|share| *share > StallShare::default());
            Some(IoWaiter {
                owner: cgroup.owner.clone(),
                share: share?,
            })
        });
        let mut waiters: Vec<IoWaiter> = waiting.collect();
        waiters.sort_by(|a, b| b.share.cmp(&a.share).then_with(|| a.owner.cmp(&b.owner)));
        waiters.truncate(NAMED);
        let users = transfers.iter().take(NAMED).map(|of| of.user(elapsed));
        Self {
            others: others(&transfers, after, elapsed),
            users: users.collect(),
            waiters,
        }
    }

    /// Creates the result if the cgroups could not be read; `node` is the wait of the whole node.
    pub fn without_cgroups(node: StallRead) -> Self {
        let others = match node {
            StallRead::Share(share) => OthersStall::Unread { node: Some(share) },
            StallRead::NoPsi => OthersStall::NoPsi,
            StallRead::Failed => OthersStall::default(),
        };
        Self {
            others,
            ..Self::default()
        }
    }

    /// Replaces the ids of pods that `find` knows by their names.
    pub fn name_pods<'a>(&mut self, find: impl Fn(&PodId) -> Option<&'a Pod>) {
        let users = self.users.iter_mut().map(|user| &mut user.owner);
        let waiters = self.waiters.iter_mut().map(|waiter| &mut waiter.owner);
        for owner in users.chain(waiters) {
            owner.name_pod(&find);
        }
    }

    /// Returns true if there is neither a user nor a waiter.
    pub const fn is_empty(&self) -> bool {
        self.users.is_empty() && self.waiters.is_empty()
    }
}

impl Transfer<'_> {
    fn bytes(&self) -> u64 {
        self.io.read.saturating_add(self.io.written)
    }

    fn is_bulk(&self, elapsed: Duration) -> bool {
        let request = self.bytes().checked_div(self.io.requests);
        let rate = Rate::of(self.bytes(), elapsed).0;
        request.is_some_and(|size| size > BULK_REQUEST.get()) || rate > BULK_RATE
    }

    fn user(&self, elapsed: Duration) -> IoUser {
        IoUser {
            owner: self.cgroup.owner.clone(),
            read: Rate::of(self.io.read, elapsed).0,
            written: Rate::of(self.io.written, elapsed).0,
        }
    }
}

/// Returns the transfer of each cgroup, the largest first, without those of zero bytes.
fn transfers<'a>(before: &IoSnapshot, after: &'a IoSnapshot) -> Vec<Transfer<'a>> {
    let measured = leaves(&after.cgroups, |of| of.io.map(|_| &of.path));
    let transfer = |(id, cgroup): (&CgroupId, &'a CgroupIo)| {
        let before = before.cgroups.get(id)?.io?;
        let now = cgroup.io?;
        let io = IoCounts {
            read: now.read.saturating_sub(before.read),
            written: now.written.saturating_sub(before.written),
            requests: now.requests.saturating_sub(before.requests),
        };
        Some(Transfer { cgroup, io })
    };
    let mut transfers: Vec<Transfer<'_>> = measured.filter_map(transfer).collect();
    transfers.retain(|of| of.bytes() > 0);
    transfers.sort_by(|a, b| {
        let by_size = b.bytes().cmp(&a.bytes());
        by_size.then_with(|| a.cgroup.path.cmp(&b.cgroup.path))
    });
    transfers
}

/// Returns the cgroups with a value that have no cgroup with a value below them. `path` returns the
/// path of a cgroup with a value.
pub(super) fn leaves<'a, T>(
    cgroups: &'a BTreeMap<CgroupId, T>,
    path: impl Fn(&'a T) -> Option<&'a String> + Copy + 'a,
) -> impl Iterator<Item = (&'a CgroupId, &'a T)> {
    let above = cgroups.values().filter_map(path);
    let above = above.filter_map(|path| path.rsplit_once('/'));
    let above: BTreeSet<&str> = above.map(|(above, _)| above).collect();
    cgroups
        .iter()
        .filter(move |pair| path(pair.1).is_some_and(|path| !above.contains(path.as_str())))
}

fn others(transfers: &[Transfer<'_>], after: &IoSnapshot, elapsed: Duration) -> OthersStall {
    let main = transfers.first().filter(|of| of.is_bulk(elapsed));
    let main = main.map(|of| of.cgroup.path.as_str());
    if after.cgroups.values().all(|of| of.stall.is_none()) {
        return after.node.into();
    }
    let is_other = |of: &&CgroupIo| {
        main.is_none_or(|main| !is_within(&of.path, main) && !is_within(main, &of.path))
    };
    let others = after.cgroups.values().filter(is_other);
    let longest = others.filter_map(|of| of.stall).max();
    OthersStall::Share(longest.unwrap_or_default())
}

impl fmt::Display for IoUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            owner,
            read,
            written,
        } = self;
        let total = read.get().saturating_add(written.get());
        // A part of less than a tenth is not worth a figure.
        let counts = |part: &Bytes| part.get() >= total / 10;
        let (read, written) = (
            counts(read).then_some(read),
            counts(written).then_some(written),
        );
        match (read, written) {
            (Some(read), Some(written)) => {
                let (read, written) = (Rate(*read), Rate(*written));
                write!(f, "{owner} ({read} read, {written} written)")
            }
            (Some(read), None) => write!(f, "{owner} ({} read)", Rate(*read)),
            (None, Some(written)) => write!(f, "{owner} ({} written)", Rate(*written)),
            (None, None) => write!(f, "{owner}"),
        }
    }
}

impl fmt::Display for IoWaiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} of the time)", self.owner, self.share)
    }
}

impl fmt::Display for IoWait {
    /// Writes `used most by pod a/b (212 MB/s written), …; waiting most: pod c/d (34% of the time),
    /// …`. Empty without users and waiters.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            users,
            waiters,
            others,
        } = self;
        if let OthersStall::Unread { node } = others {
            f.write_str("the cgroups that use it could not be read in time")?;
            return match node {
                Some(share) => write!(f, "; tasks of the node waited for I/O {share} of the time"),
                None => Ok(()),
            };
        }
        let separator = if users.is_empty() || waiters.is_empty() {
            ""
        } else {
            "; "
        };
        list(f, USED_MOST, users)?;
        f.write_str(separator)?;
        list(f, "waiting most: ", waiters)
    }
}

fn list(f: &mut fmt::Formatter<'_>, lead: &str, items: &[impl fmt::Display]) -> fmt::Result {
    let mut before = lead;
    for item in items {
        write!(f, "{before}{item}")?;
        before = ", ";
    }
    Ok(())
}

#[cfg(test)]
mod tests;
