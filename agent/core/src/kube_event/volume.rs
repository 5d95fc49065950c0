//! Volumes on disks that are slow, do not respond or return errors.

use serde::{Deserialize, Serialize};

use super::Words;
use crate::escape::quote_to;

/// Maximum number of characters of the name of a volume or a disk.
const NAME_CHARS: usize = 128;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum DiskTrouble {
    /// The disk has high I/O latency.
    Slow,
    Stalled,
    Errors,
}

/// A disk below a volume of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeTrouble {
    pub disk: String,
    /// The name of the volume, which can be any text.
    pub volume: String,
    pub trouble: DiskTrouble,
    /// Numbers and causes, escaped. May be empty.
    pub details: String,
}

impl DiskTrouble {
    /// The name in JSON and in the log.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Slow => "slow",
            Self::Stalled => "stalled",
            Self::Errors => "errors",
        }
    }
}

impl VolumeTrouble {
    pub(super) fn words(&self) -> Words {
        let (reason, what) = match self.trouble {
            DiskTrouble::Slow => ("SlowVolume", "has high I/O latency"),
            DiskTrouble::Stalled => ("SlowVolume", "does not respond"),
            DiskTrouble::Errors => ("VolumeErrors", "returns errors"),
        };
        let [disk, volume] = [&self.disk, &self.volume].map(|name| quote_to(name, NAME_CHARS));
        let separator = if self.details.is_empty() { "" } else { ": " };
        let details = &self.details;
        Words {
            reason,
            message: format!("Disk {disk} of volume {volume} {what}{separator}{details}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_event_names_disk_and_volume_and_what_is_wrong() {
        let long = "v".repeat(300);
        let cut = format!("Disk sdb of volume {}… returns errors", &long[..NAME_CHARS]);
        #[rustfmt::skip]
        let rows = [
            (DiskTrouble::Slow, "data", "5 of 6 requests", "SlowVolume",
                "Disk sdb of volume data has high I/O latency: 5 of 6 requests"),
            (DiskTrouble::Stalled, "a\n\u{202e}b", "", "SlowVolume",
                "Disk sdb of volume \"a\\n\\u{202e}b\" does not respond"),
            (DiskTrouble::Errors, &long, "", "VolumeErrors", &cut),
        ];
        for (trouble, volume, details, reason, message) in rows {
            let trouble = VolumeTrouble {
                disk: "sdb".to_owned(),
                volume: volume.to_owned(),
                trouble,
                details: details.to_owned(),
            };
            let words = trouble.words();
            assert_eq!((words.reason, words.message.as_str()), (reason, message));
        }
    }
}
