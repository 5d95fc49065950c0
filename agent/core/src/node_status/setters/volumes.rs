//! `volumesInUse`, which the attach-detach controller waits for, and limits for old schedulers.

use super::{Context, SetterError};
use crate::node_status::NodeStatus;
use crate::units::quantity::Quantity;

/// Prefix of the key of a CSI driver's limit.
const LIMIT_PREFIX: &str = "attachable-volumes-csi-";

/// Writes the mounted volumes, which the controller does not detach.
///
/// While they are unknown, the stored list stays: an extra volume is better than one that is
/// detached while in use.
pub fn in_use(context: &Context<'_>, status: &mut NodeStatus) -> Result<(), SetterError> {
    status.volumes_in_use.clone_from(&context.facts.volumes);
    Ok(())
}

/// Writes the configured limits. There are none by default: current kubelets report them in
/// `CSINode`.
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
    use crate::node_status::fixture::compute;
    use crate::node_status::fixture::{facts, now};
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
    fn limits_are_reported_only_if_configured() {
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
}
