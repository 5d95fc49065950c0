//! Events about volumes on disks that are slow, do not respond or return errors.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::{Annotations, Draft, Involved, ReportedKills};
use crate::escape::quote_to;
use crate::node_status::transition::EventType;
use crate::pods::Pod;

/// Maximum number of characters of the name of a volume or a disk.
const NAME_CHARS: usize = 128;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum DiskTrouble {
    /// The disk has high I/O latency.
    Slow,
    Stalled,
    Errors,
}

/// A disk below a volume of a pod.
#[derive(Debug, Clone, Copy)]
pub struct VolumeTrouble<'a> {
    pub disk: &'a str,
    /// The name of the volume, which can be any text.
    pub volume: &'a str,
    pub trouble: DiskTrouble,
    /// Numbers and causes, escaped. May be empty.
    pub details: &'a str,
}

impl VolumeTrouble<'_> {
    pub fn draft(self, pod: &Pod, at: SystemTime) -> Draft {
        let (reason, what) = match self.trouble {
            DiskTrouble::Slow => ("SlowVolume", "has high I/O latency"),
            DiskTrouble::Stalled => ("SlowVolume", "does not respond"),
            DiskTrouble::Errors => ("VolumeErrors", "returns errors"),
        };
        let [disk, volume] = [self.disk, self.volume].map(|name| quote_to(name, NAME_CHARS));
        let separator = if self.details.is_empty() { "" } else { ": " };
        Draft {
            id: None,
            container: None,
            is_later: false,
            object: Involved::Pod {
                namespace: pod.namespace.to_string(),
                name: pod.name.to_string(),
                uid: pod.uid.to_string(),
                field_path: None,
            },
            type_: EventType::Warning,
            is_transition: false,
            reason: reason.to_owned(),
            message: format!(
                "Disk {disk} of volume {volume} {what}{separator}{}",
                self.details
            ),
            annotations: Annotations::new(),
            of: 1,
            times: 1,
            kills: ReportedKills::default(),
            at,
            stamp: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn the_event_names_disk_and_volume_and_what_is_wrong() {
        let pod = Pod::new("team", "web", "4e7b6a2e-6d1f-4c55-9a3e-0a1b2c3d4e5f", None).unwrap();
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
                disk: "sdb",
                volume,
                trouble,
                details,
            };
            let draft = trouble.draft(&pod, UNIX_EPOCH);
            assert_eq!((&*draft.reason, &*draft.message), (reason, message));
            assert_eq!(draft.type_, EventType::Warning);
        }
    }
}
