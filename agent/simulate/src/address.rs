//! Addresses of simulated nodes and pods: 198.18.0.0/15, the range for benchmarks of networks,
//! which no network routes. The first /18 is for nodes.
//! <https://datatracker.ietf.org/doc/html/rfc2544#appendix-C.2.2>

use std::net::Ipv4Addr;

const RANGE: u32 = u32::from_be_bytes([198, 18, 0, 0]);

/// Maximum number of nodes.
pub const MAX_NODES: u32 = 1 << 14;

/// Number of addresses of pods.
const PODS: u32 = (1 << 17) - MAX_NODES;

pub const fn of_node(node: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(RANGE + node % MAX_NODES)
}

/// Returns the address of the pod in a slot. With more pods than addresses, some have the same.
pub const fn of_pod(slot: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(RANGE + MAX_NODES + slot % PODS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_and_pods_share_no_address() {
        let text = |address: Ipv4Addr| address.to_string();
        assert_eq!(text(of_node(0)), "198.18.0.0");
        assert_eq!(text(of_node(MAX_NODES - 1)), "198.18.63.255");
        assert_eq!(text(of_pod(0)), "198.18.64.0");
        assert_eq!(text(of_pod(PODS - 1)), "198.19.255.255");
        assert_eq!(of_pod(PODS), of_pod(0));
    }
}
