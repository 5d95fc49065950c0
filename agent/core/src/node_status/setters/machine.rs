//! Capacity, allocatable, and the identifiers of this machine and boot.

use super::{Context, SetterError};
use crate::node_status::{NodeStatus, capacity};

/// Writes capacity, allocatable and the identifiers of `nodeInfo`.
///
/// A new boot id is handled by [`crate::node_status::transition::edges`].
pub fn set(context: &Context<'_>, status: &mut NodeStatus) -> Result<(), SetterError> {
    let facts = context.facts;
    status.capacity = capacity::capacity(facts);
    status.allocatable = capacity::allocatable(facts, &status.capacity, context.stored_capacity);

    let machine = &facts.machine;
    let info = &mut status.node_info;
    info.machine_id.clone_from(&machine.machine_id);
    info.system_uuid.clone_from(&machine.system_uuid);
    info.boot_id.clone_from(&machine.boot_id);
    // The API server rejects a swap of zero, so the field is omitted.
    info.swap_capacity = match machine.swap.get() {
        0 => None,
        bytes => Some(i64::try_from(bytes).unwrap_or(i64::MAX)),
    };
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::node_status::fixture::{facts, status_of};
    use crate::units::Bytes;

    #[test]
    fn swap_is_in_bytes_and_absent_without_any() {
        let rows = [
            (Bytes::default(), None, "no swap"),
            (Bytes::from_bytes(1), Some(1), "the minimum"),
            (Bytes::from_kib(2048), Some(2_097_152), "SwapTotal in bytes"),
            (
                Bytes::from_bytes(u64::MAX),
                Some(i64::MAX),
                "nonsense does not turn negative",
            ),
        ];
        for (swap, expected, why) in rows {
            let mut facts = facts();
            facts.machine.swap = swap;
            let info = status_of(&facts).node_info;
            assert_eq!(info.swap_capacity, expected, "{why}");
        }
    }
}
