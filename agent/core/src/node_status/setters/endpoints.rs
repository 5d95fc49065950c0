//! `daemonEndpoints`: the port of a kubelet.

use super::{Context, SetterError};
use crate::node_status::NodeStatus;

/// Writes the port if it is configured.
pub fn set(context: &Context<'_>, status: &mut NodeStatus) -> Result<(), SetterError> {
    status.kubelet_port = context.facts.kubelet_port;
    Ok(())
}
