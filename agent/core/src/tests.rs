//! What the tests of several modules begin with.

use std::time::{Duration, SystemTime};

use crate::clock::{BootNanos, Now, Stamp};
use crate::kube_event::{Finding, KillOwner, VictimOwner};
use crate::pressure::oom::{Doubt, KillVerdict};
use crate::reading::oom::{LimitOwner, OomScope};
use crate::units::Pid;

/// Converts seconds since boot.
pub fn boot(seconds: u64) -> BootNanos {
    BootNanos(0).plus(Duration::from_secs(seconds))
}

/// Returns a moment of a machine that booted at the epoch.
pub fn now(seconds: u64) -> Now {
    Now {
        boot: boot(seconds),
        wall: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds),
    }
}

/// Returns the stamp of a record that was read without a delay.
pub fn stamp(at: BootNanos) -> Stamp {
    Stamp {
        kernel: at,
        read: at,
    }
}

/// Returns a kill outside of the pods, as many seconds after boot as its victim's number.
pub fn finding(pid: u32) -> Finding {
    Finding {
        stamp: stamp(boot(u64::from(pid))),
        victim: Pid(pid),
        comm: format!("p{pid}"),
        uid: None,
        uid_in_namespace: None,
        cgroup: None,
        owner: VictimOwner::NoPod,
        counter: KillOwner::NoPod,
        unit: None,
        scope: OomScope::Unknown,
        resident: None,
        trigger: None,
        trigger_container: None,
        consequence: None,
        group: None,
        verdict: KillVerdict::EventOnly {
            why: Doubt::LocalLimit(LimitOwner::Other),
        },
    }
}
