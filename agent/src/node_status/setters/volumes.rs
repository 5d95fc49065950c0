//! `volumesInUse`, which the attach-detach controller waits for, and limits for schedulers of old.

use super::{Context, SetterError};
use crate::node_status::NodeStatus;
use crate::units::quantity::Quantity;

/// What the key of a CSI driver's limit begins with.
const LIMIT_PREFIX: &str = "attachable-volumes-csi-";

/// Writes the volumes that are mounted here. The controller detaches none that is named.
///
/// While they are not known, what is stored stays: better a volume too many than one that is torn
/// off under its user.
pub fn in_use(context: &Context<'_>, status: &mut NodeStatus) -> Result<(), SetterError> {
    status.volumes_in_use.clone_from(&context.facts.volumes);
    Ok(())
}

/// Writes the configured limits. None by default: kubelets of today say them in `CSINode`.
pub fn limits(context: &Context<'_>, status: &mut NodeStatus) -> Result<(), SetterError> {
    for (driver, limit) in &context.facts.allocation.volume_limits {
        let key = format!("{LIMIT_PREFIX}{driver}");
        let limit = Quantity::from_count(u64::from(*limit));
        status.capacity.insert(key.clone(), limit);
        status.allocatable.insert(key, limit);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::node_status::sample::compute;
    use crate::node_status::sample::{facts, now};
    use crate::node_status::setters::SETTERS;
    use crate::node_status::{Facts, StoredNode};

    fn limits(facts: &Facts) -> Vec<(String, i64)> {
        let (status, failed) = compute(SETTERS, facts, &StoredNode::default(), now());
        assert_eq!(failed, []);
        let of = |map: &std::collections::BTreeMap<String, crate::units::quantity::Quantity>| {
            map.iter()
                .filter(|(key, _)| key.starts_with("attachable-volumes-"))
                .map(|(key, limit)| (key.clone(), limit.value()))
                .collect::<Vec<_>>()
        };
        assert_eq!(of(&status.capacity), of(&status.allocatable));
        of(&status.capacity)
    }

    #[test]
    fn limits_are_said_only_where_they_are_configured() {
        let mut facts = facts();
        assert_eq!(limits(&facts), []);
        facts.allocation.volume_limits = [
            ("disk.csi.example.com".to_owned(), 16),
            ("none".to_owned(), 0),
        ]
        .into();
        let expected = [
            ("attachable-volumes-csi-disk.csi.example.com".to_owned(), 16),
            ("attachable-volumes-csi-none".to_owned(), 0),
        ];
        assert_eq!(limits(&facts), expected);
    }

    #[test]
    fn what_is_mounted_is_in_use_and_what_is_not_known_is_left_as_it_is() {
        let volume = "kubernetes.io/csi/d^v".to_owned();
        for volumes in [None, Some(Vec::new()), Some(vec![volume])] {
            let mut facts = facts();
            facts.volumes.clone_from(&volumes);
            let (status, _) = compute(SETTERS, &facts, &StoredNode::default(), now());
            assert_eq!(status.volumes_in_use, volumes);
        }
    }
}
