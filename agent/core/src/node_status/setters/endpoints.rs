//! `daemonEndpoints`: the port of a kubelet.

use super::{Context, SetterError};
use crate::node_status::NodeStatus;

pub fn set(context: &Context<'_>, status: &mut NodeStatus) -> Result<(), SetterError> {
    status.kubelet_port = context.facts.kubelet_port;
    Ok(())
}
