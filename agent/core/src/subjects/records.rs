//! Converts records of the kernel to inputs of the subjects.

use super::{DiskInput, Input, KillCounterInput, KillInput, StallInput};
use crate::clock::Stamp;
use crate::record::{Received, Record};

/// Converts a record to an input. `pods` returns the path of the pods cgroup, which only kills
/// need.
pub fn input(received: Received, pods: impl FnOnce() -> String) -> Input {
    let read = received.read;
    // A record that cannot be used may have been a kill.
    let unusable = Input::KillCounter(KillCounterInput::RecordsLost);
    let Ok(record) = received.record else {
        return unusable;
    };
    match record {
        Record::OomKill(kill) => Input::Kill(KillInput::Recorded {
            kill,
            read,
            pods: pods(),
        }),
        Record::LoggedKill(kill) => Input::Kill(KillInput::Logged {
            kill,
            read,
            pods: pods(),
        }),
        Record::LogEnded => Input::KillCounter(KillCounterInput::LogEnded),
        Record::PidCrossing { at, side, value } => Input::PidsReported {
            side: Some(side),
            ids: value,
            stamp: Stamp { kernel: at, read },
        },
        Record::PidTrend { at, value } => Input::PidsReported {
            side: None,
            ids: value,
            stamp: Stamp { kernel: at, read },
        },
        Record::DiskReported { at, device, report } => Input::Disk(DiskInput::Reported {
            device,
            report,
            stamp: Stamp { kernel: at, read },
        }),
        Record::Disk(change) => Input::Disk(DiskInput::Announced(change)),
        Record::DisksMissed => Input::Disk(DiskInput::AnnouncementsLost),
        Record::CgroupsChanged { .. } => Input::CgroupsChanged,
        Record::Stall { stall, .. } => Input::Stall(StallInput::Reported(stall)),
        Record::Unknown { .. } => unusable,
    }
}

pub const fn is_kill(input: &Input) -> bool {
    matches!(
        input,
        Input::Kill(KillInput::Recorded { .. } | KillInput::Logged { .. })
    )
}
