//! `daemonEndpoints`: the port of a kubelet.

use super::{Context, SetterError};
use crate::node_status::NodeStatus;

pub fn set(context: &Context<'_>, status: &mut NodeStatus) -> Result<(), SetterError> {
    status.kubelet_port = context.facts.kubelet_port;
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::node_status::StoredNode;
    use crate::node_status::fixture::compute;
    use crate::node_status::fixture::{facts, now};
    use crate::node_status::setters::SETTERS;

    #[test]
    fn the_port_is_omitted_unless_configured() {
        for (configured, why) in [(None, "nothing listens"), (Some(10250), "set")] {
            let mut facts = facts();
            facts.kubelet_port = configured;
            let (status, _) = compute(SETTERS, &facts, &StoredNode::default(), now());
            assert_eq!(status.kubelet_port, configured, "{why}");
        }
    }
}
