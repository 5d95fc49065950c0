//! What the tests of several modules begin with.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use crate::clock::{BootNanos, Now, Stamp};
use crate::incident::{BootId, Incident, IncidentIds, Object, Occurred};
use crate::kube_event::{Cause, Finding, KillOwner, VictimOwner};
use crate::pressure::frequent_kills::FrequentOom;
use crate::pressure::oom::{Doubt, KillVerdict};
use crate::pressure::stall::StallThresholds;
use crate::pressure::{Policy, SlowDisks};
use crate::reading::oom::{LimitOwner, OomScope};
use crate::settings::{DiskIo, Mode, OomNodeEvents, SlowLimit};
use crate::subjects::{
    Announced, DiskProbe, DiskSetup, IoTrigger, KillCounterSetup, NodeSetup, RuntimeUse, Setup,
    SignalSetup, StallSetup,
};
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
        cause: Cause {
            number: u64::from(pid),
            is_first: true,
        },
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

/// Returns the first revision of an incident whose pod, if there was one, is not known.
pub fn incident(occurred: Occurred) -> Incident {
    Incident {
        id: IncidentIds::new(BootId(1)).assign(BootNanos(7)),
        revision: 1,
        settled: false,
        added: occurred.kills.total(),
        object: Object {
            pod: None,
            container: None,
            is_resolved: true,
        },
        occurred,
        details: None,
    }
}

/// Returns what the subjects of companion mode need at start, without disks, stalls and thresholds.
pub fn setup(counters: KillCounterSetup, started: BootNanos) -> Setup {
    let transition_period = Duration::from_mins(5);
    Setup {
        started,
        boot: BootId(1),
        conditions: BTreeMap::new(),
        has_server: true,
        runtime: RuntimeUse::Unused,
        certificate: None,
        node: NodeSetup {
            mode: Mode::Companion,
            page: 4096,
            counters,
            node_events: OomNodeEvents::Auto,
            frequent_oom: FrequentOom {
                incidents: 5,
                pods: 3,
                window: Duration::from_mins(10),
            },
            refused_forks: Announced::Yes,
        },
        signals: SignalSetup {
            policy: Policy {
                thresholds: Vec::new(),
                transition_period,
                slow_disks: SlowDisks::NodepulseConditionOnly,
            },
            announced: Vec::new(),
            pods_cgroup: "/kubepods".to_owned(),
        },
        disks: DiskSetup {
            settings: DiskIo {
                solid_state_slow: SlowLimit::Auto,
                rotational_slow: SlowLimit::Fixed(Duration::from_millis(100)),
                devices: BTreeMap::new(),
                window: Duration::from_secs(1),
                slow_for: Duration::from_secs(15),
                min_stall: 10.0,
                stalled_after: Duration::from_secs(10),
            },
            probe: DiskProbe::Missing,
            trigger: IoTrigger::Missing,
        },
        stalls: StallSetup {
            thresholds: StallThresholds {
                memory: 15.0,
                io: 40.0,
            },
            transition_period,
            watched: Vec::new(),
        },
    }
}
