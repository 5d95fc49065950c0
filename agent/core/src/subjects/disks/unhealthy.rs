//! Reports a disk that is not healthy, apart from the condition.

use super::super::VolumeInput;
use super::{Effect, Input, pass_on};
use crate::kube_event::DiskTrouble;
use crate::pressure::disks::Health;
use crate::reading::{DiskRole, Ground, Resource};
use crate::units::DeviceNumber;

/// Returns the details of the Event about the condition for a disk of the node, and Events on the
/// pods that use it for another disk.
pub(super) fn report(
    device: DeviceNumber,
    name: &str,
    role: DiskRole,
    health: Health,
    details: &str,
) -> Option<Effect> {
    let (resource, trouble) = match health {
        Health::Healthy => return None,
        Health::Slow => (Resource::DiskIo, DiskTrouble::Slow),
        Health::Stalled => (Resource::DiskFailing, DiskTrouble::Stalled),
        Health::Failing => (Resource::DiskFailing, DiskTrouble::Errors),
    };
    let details = details.to_owned();
    Some(match role {
        DiskRole::Node => Effect::ConditionDetails {
            of: Ground::Resource(resource),
            details: Some(details),
        },
        DiskRole::Volume => pass_on(Input::Volume(VolumeInput::Trouble {
            device,
            name: name.to_owned(),
            trouble,
            details,
        })),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_of_the_node_has_details_and_another_one_has_events_on_pods() {
        use Resource::{DiskFailing, DiskIo};

        let device = DeviceNumber { major: 8, minor: 0 };
        let details = |resource| Effect::ConditionDetails {
            of: Ground::Resource(resource),
            details: Some("numbers".to_owned()),
        };
        let events = |trouble| {
            pass_on(Input::Volume(VolumeInput::Trouble {
                device,
                name: "sda".to_owned(),
                trouble,
                details: "numbers".to_owned(),
            }))
        };
        let rows = [
            (Health::Slow, DiskIo, DiskTrouble::Slow),
            (Health::Stalled, DiskFailing, DiskTrouble::Stalled),
            (Health::Failing, DiskFailing, DiskTrouble::Errors),
        ];
        let of = |role, health| report(device, "sda", role, health, "numbers");
        for (health, resource, trouble) in rows {
            assert_eq!(of(DiskRole::Node, health), Some(details(resource)));
            assert_eq!(of(DiskRole::Volume, health), Some(events(trouble)));
        }
        for role in [DiskRole::Node, DiskRole::Volume] {
            assert_eq!(of(role, Health::Healthy), None);
        }
    }
}
