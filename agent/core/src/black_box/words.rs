//! The wording of the end of a boot.

use std::fmt::Write as _;

use super::{BootEnd, Certainty, End, Readings, UnhealthyDisk};
use crate::kube_event::{DiskTrouble, Words};
use crate::reading::Signal;
use crate::units::Bytes;

/// The reason of the Event.
pub const UNCLEAN_REBOOT: &str = "UncleanReboot";

impl End {
    /// The name in JSON and in tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Shutdown => "Shutdown",
            Self::KernelPanic => "KernelPanic",
            Self::MachineCheck => "MachineCheck",
            Self::Watchdog => "Watchdog",
            Self::NotObserved => "NotObserved",
            Self::PowerLossOrReset => "PowerLossOrReset",
        }
    }
}

impl Certainty {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Certain => "certain",
            Self::Likely => "likely",
            Self::Possible => "possible",
        }
    }
}

impl BootEnd {
    /// Returns the words of the Event, which only an unclean end has.
    pub fn words(&self) -> Words {
        let certainty = match self.certainty {
            Certainty::Certain => "",
            Certainty::Likely => " (likely)",
            Certainty::Possible => " (possibly)",
        };
        let mut message = match self.end {
            End::Shutdown => "The last boot ended by a shutdown",
            End::KernelPanic => "The last boot ended by a kernel panic",
            End::MachineCheck => "The last boot ended by a hardware error",
            End::Watchdog => "The last boot ended by a reset by a watchdog",
            End::NotObserved => "It is not known how the last boot ended",
            End::PowerLossOrReset => "The last boot ended by a power loss or a reset",
        }
        .to_owned();
        // Writing to a String cannot fail.
        let _written = write!(message, "{certainty}: {}. ", self.evidence.join("; "));
        message += &self.readings().in_words();
        Words {
            reason: if self.is_unclean() {
                UNCLEAN_REBOOT
            } else {
                "BootEnded"
            },
            message,
        }
    }
}

impl Readings {
    pub fn lowest_memory(&self) -> Option<Bytes> {
        let range = self.signals.get(Signal::MemoryAvailable.as_str())?;
        Some(Bytes::from_bytes(u64::try_from(range.lowest).unwrap_or(0)))
    }

    /// Returns the readings of the last ten minutes as a sentence.
    fn in_words(&self) -> String {
        let mut parts = Vec::new();
        if let Some(low) = self.lowest_memory() {
            parts.push(format!("at least {low} of memory was available"));
        }
        for (kind, share) in self.stalls.iter().filter(|(_, share)| 0 < **share) {
            parts.push(format!(
                "tasks waited for {kind} up to {share}% of the time"
            ));
        }
        match self.kills {
            0 => {}
            1 => parts.push("1 process was OOM-killed".to_owned()),
            kills => parts.push(format!("{kills} processes were OOM-killed")),
        }
        for UnhealthyDisk { name, health } in &self.disks {
            parts.push(match health {
                DiskTrouble::Stalled => format!("disk {name} did not respond"),
                DiskTrouble::Errors => format!("disk {name} returned errors"),
                DiskTrouble::Slow => format!("disk {name} had high I/O latency"),
            });
        }
        if parts.is_empty() {
            return "Memory was not read in its last ten minutes.".to_owned();
        }
        format!("In its last ten minutes, {}.", parts.join(", "))
    }
}
