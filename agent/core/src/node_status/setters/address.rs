//! `status.addresses`: `InternalIP` of each requested family, then `Hostname`.
//!
//! Addresses given by `--node-ip` are checked each time and used as they are. Without one, the
//! first of these is used: the name, if it is an address; an address of the name in DNS; an address
//! of the interface of a default route. Until the name is looked up, the stored addresses stay.

use std::net::IpAddr;

use super::{Context, SetterError};
use crate::node_status::{Address, Facts, NodeStatus};
use crate::reading::{InterfaceAddress, Network};

/// The reason for which an address cannot be the node's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    #[error("is a loopback address")]
    Loopback,
    #[error("is a multicast address")]
    Multicast,
    #[error("is a link-local address")]
    LinkLocal,
    #[error("is the unspecified address")]
    Unspecified,
    #[error("is on none of the interfaces")]
    Absent,
}

/// The reason for which no address was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotFound {
    #[error("no default routes found")]
    NoDefaultRoute,
    /// There are default routes, but their interfaces have no global unicast address.
    #[error("unable to select an IP from default routes")]
    NothingBehindRoutes,
    /// There is no routing table.
    #[error("no acceptable interface with global unicast address found on host")]
    NothingOnInterfaces,
}

/// Writes the whole list, or nothing.
pub fn set(context: &Context<'_>, status: &mut NodeStatus) -> Result<(), SetterError> {
    let facts = context.facts;
    let internal = if facts.node_ips.iter().any(IpAddr::is_unspecified) || facts.node_ips.is_empty()
    {
        if facts.network.is_resolving && facts.hostname.parse::<IpAddr>().is_err() {
            return Ok(());
        }
        vec![search(facts)?]
    } else {
        for &ip in &facts.node_ips {
            usable(ip, &facts.network).map_err(|why| SetterError::NodeIp { ip, why })?;
        }
        facts.node_ips.clone()
    };
    let addresses = internal
        .into_iter()
        .map(Address::InternalIp)
        .chain([Address::Hostname(facts.hostname.clone())]);
    status.addresses = Some(addresses.collect());
    Ok(())
}

/// Checks that the API server's clients can reach this node under `ip`.
fn usable(ip: IpAddr, network: &Network) -> Result<(), Unusable> {
    if ip.is_loopback() {
        Err(Unusable::Loopback)
    } else if ip.is_multicast() {
        Err(Unusable::Multicast)
    } else if is_link_local(ip) {
        Err(Unusable::LinkLocal)
    } else if ip.is_unspecified() {
        Err(Unusable::Unspecified)
    } else if !network.addresses.iter().any(|a| a.ip == ip) {
        Err(Unusable::Absent)
    } else {
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

impl Family {
    const fn of(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    const fn other(self) -> Self {
        match self {
            Self::V4 => Self::V6,
            Self::V6 => Self::V4,
        }
    }
}

fn search(facts: &Facts) -> Result<IpAddr, SetterError> {
    // `--node-ip ::` means any IPv6 address.
    let preferred = facts
        .node_ips
        .first()
        .map_or(Family::V4, |&ip| Family::of(ip));

    if let Ok(ip) = facts.hostname.parse() {
        return Ok(ip);
    }
    if let Some(ip) = by_name(&facts.network, preferred) {
        return Ok(ip);
    }
    by_route(&facts.network, preferred).map_err(|why| SetterError::NoAddress {
        node: facts.hostname.clone(),
        why,
    })
}

fn by_name(network: &Network, preferred: Family) -> Option<IpAddr> {
    let mut known = network
        .resolved
        .iter()
        .copied()
        .filter(|&ip| usable(ip, network).is_ok());
    let mut of_preferred = known.clone().filter(|&ip| Family::of(ip) == preferred);
    of_preferred.next().or_else(|| known.next())
}

fn by_route(network: &Network, preferred: Family) -> Result<IpAddr, NotFound> {
    let families = [preferred, preferred.other()];
    let Some(default_v4) = &network.default_v4 else {
        // Without a routing table: the first address of any external interface.
        return families
            .into_iter()
            .find_map(|family| first_global(network, family, |a| !a.loopback && !a.point_to_point))
            .ok_or(NotFound::NothingOnInterfaces);
    };
    if default_v4.is_empty() && network.default_v6.is_empty() {
        return Err(NotFound::NoDefaultRoute);
    }
    families
        .into_iter()
        .find_map(|family| {
            let routes = match family {
                Family::V4 => default_v4,
                Family::V6 => &network.default_v6,
            };
            routes.iter().find_map(|interface| {
                // If routers use link-local addresses only (RFC 5549), the node's own
                // address is on the loopback interface.
                first_global(network, family, |a| a.interface == *interface)
                    .or_else(|| first_global(network, family, |a| a.loopback))
            })
        })
        .ok_or(NotFound::NothingBehindRoutes)
}

fn first_global(
    network: &Network,
    family: Family,
    matches: impl Fn(&InterfaceAddress) -> bool,
) -> Option<IpAddr> {
    network
        .addresses
        .iter()
        .filter(|a| a.up && matches(a))
        .map(|a| a.ip)
        .find(|&ip| Family::of(ip) == family && is_global_unicast(ip))
}

const fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

/// Follows Go's definition: private addresses are global.
const fn is_global_unicast(ip: IpAddr) -> bool {
    let broadcast = match ip {
        IpAddr::V4(ip) => ip.is_broadcast(),
        IpAddr::V6(_) => false,
    };
    !(broadcast
        || ip.is_unspecified()
        || ip.is_loopback()
        || ip.is_multicast()
        || is_link_local(ip))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node_status::StoredNode;
    use crate::node_status::fixture::{facts, ips, on};

    fn addresses(facts: &Facts) -> Result<Vec<String>, String> {
        let stored = StoredNode::default();
        let context = Context {
            facts,
            stored_capacity: &stored.capacity,
        };
        let mut status = NodeStatus::default();
        let result = set(&context, &mut status);
        assert_eq!(
            result.is_err(),
            status.addresses.is_none(),
            "a failure writes nothing"
        );
        result.map_err(|err| {
            let text = err.to_string();
            text.split_once("; set --node-ip").unwrap().0.to_owned()
        })?;
        Ok(status
            .addresses
            .unwrap()
            .into_iter()
            .map(|address| match address {
                Address::InternalIp(ip) => format!("InternalIP {ip}"),
                Address::Hostname(name) => format!("Hostname {name}"),
            })
            .collect())
    }

    /// Returns facts with one address of each family on eth0, and a loopback interface.
    fn two_families() -> Facts {
        let mut facts = facts();
        facts.network.addresses = vec![
            InterfaceAddress {
                loopback: true,
                ..on("lo", "127.0.0.1")
            },
            on("eth0", "192.0.2.7"),
            on("eth0", "fe80::7"),
            on("eth0", "2001:db8::7"),
        ];
        facts.network.default_v6 = vec!["eth0".to_owned()];
        facts
    }

    #[test]
    fn explicit_addresses_are_used_in_the_order_given() {
        #[rustfmt::skip]
        let rows: [(&[&str], &[&str], &str); 4] = [
            (&["2001:db8::7", "192.0.2.7"],
                &["InternalIP 2001:db8::7", "InternalIP 192.0.2.7", "Hostname worker-1"], "two"),
            (&["2001:db8::7"], &["InternalIP 2001:db8::7", "Hostname worker-1"], "one"),
            (&["0.0.0.0"], &["InternalIP 192.0.2.7", "Hostname worker-1"], "unspecified: search, IPv4 preferred"),
            (&["::"], &["InternalIP 2001:db8::7", "Hostname worker-1"], "unspecified: search, IPv6 preferred"),
        ];
        for (node_ips, expected, why) in rows {
            let mut facts = two_families();
            facts.node_ips = ips(node_ips);
            assert_eq!(addresses(&facts).unwrap(), expected, "{why}");
        }
    }

    #[test]
    fn an_explicit_address_must_be_reachable_and_belong_to_the_node() {
        #[rustfmt::skip]
        let rows = [
            (&["127.0.0.1"][..], "node IP 127.0.0.1 is a loopback address"),
            (&["224.0.0.9"], "node IP 224.0.0.9 is a multicast address"),
            (&["ff02::1"], "node IP ff02::1 is a multicast address"),
            (&["169.254.1.1"], "node IP 169.254.1.1 is a link-local address"),
            (&["fe80::7"], "node IP fe80::7 is a link-local address"),
            (&["192.0.2.8"], "node IP 192.0.2.8 is on none of the interfaces"),
            (&["192.0.2.7", "2001:db8::8"], "node IP 2001:db8::8 is on none of the interfaces"),
        ];
        for (node_ips, expected) in rows {
            let mut facts = two_families();
            facts.node_ips = ips(node_ips);
            assert_eq!(addresses(&facts).unwrap_err(), expected);
        }
    }

    /// Name, `--node-ip` and DNS answers; then the expected address and the reason.
    type ByName = (
        &'static str,
        &'static [&'static str],
        &'static [&'static str],
        &'static str,
        &'static str,
    );

    #[test]
    fn without_an_explicit_address_the_name_takes_precedence() {
        #[rustfmt::skip]
        let rows: [ByName; 7] = [
            ("203.0.113.9", &[], &["192.0.2.7"], "203.0.113.9", "the name is an address"),
            ("worker-1", &[], &["192.0.2.7"], "192.0.2.7", "in DNS"),
            ("worker-1", &[], &["2001:db8::7", "192.0.2.7"], "192.0.2.7", "of the preferred family, though later"),
            ("worker-1", &["::"], &["192.0.2.7", "2001:db8::7"], "2001:db8::7", "of the preferred family, IPv6"),
            ("worker-1", &[], &["127.0.0.1", "2001:db8::7"], "2001:db8::7",
                "the other family: addresses such as Debian's 127.0.1.1 are not usable"),
            ("worker-1", &[], &["127.0.0.1", "203.0.113.1"], "192.0.2.7", "none of them is usable: by route"),
            ("worker-1", &[], &[], "192.0.2.7", "not in DNS: by route"),
        ];
        for (name, node_ips, resolved, expected, why) in rows {
            let mut facts = two_families();
            facts.hostname = name.to_owned();
            facts.node_ips = ips(node_ips);
            facts.network.resolved = ips(resolved);
            assert_eq!(
                addresses(&facts).unwrap(),
                [format!("InternalIP {expected}"), format!("Hostname {name}")],
                "{why}"
            );
        }
    }

    #[test]
    fn until_the_name_is_resolved_only_addresses_that_do_not_depend_on_it_are_written() {
        let rows: [(&str, &[&str], bool); 4] = [
            ("worker-1", &[], false),
            ("worker-1", &["0.0.0.0"], false),
            ("worker-1", &["192.0.2.7"], true),
            ("203.0.113.9", &[], true),
        ];
        for (name, node_ips, expected) in rows {
            let mut facts = two_families();
            facts.hostname = name.to_owned();
            facts.node_ips = ips(node_ips);
            facts.network.is_resolving = true;
            let stored = StoredNode::default();
            let context = Context {
                facts: &facts,
                stored_capacity: &stored.capacity,
            };
            let mut status = NodeStatus::default();
            set(&context, &mut status).unwrap();
            assert_eq!(status.addresses.is_some(), expected, "{name} {node_ips:?}");
        }
    }

    #[test]
    fn the_default_route_names_the_interface() {
        let on_loopback = |ip| InterfaceAddress {
            loopback: true,
            ..on("lo", ip)
        };
        let down = |interface, ip| InterfaceAddress {
            up: false,
            ..on(interface, ip)
        };
        let tunnel = |ip| InterfaceAddress {
            point_to_point: true,
            ..on("wg0", ip)
        };
        let failed = |why: &str| {
            Err(format!(
                "can't get ip address of node worker-1. error: {why}"
            ))
        };
        let found = |ip: &str| {
            Ok(vec![
                format!("InternalIP {ip}"),
                "Hostname worker-1".to_owned(),
            ])
        };

        let no_file = None;
        let none: Option<&[&str]> = Some(&[]);
        let eth1: Option<&[&str]> = Some(&["eth1"]);
        #[rustfmt::skip]
        let rows = [
            (vec![on("eth0", "192.0.2.7"), on("eth1", "10.0.0.7")], eth1, &[][..], found("10.0.0.7"),
                "the interface of the route, private or not"),
            (vec![on("eth1", "169.254.0.7"), on("eth1", "10.0.0.7")], eth1, &[], found("10.0.0.7"),
                "the first global one on it"),
            (vec![on_loopback("127.0.0.1"), on_loopback("10.9.9.9"), on("eth1", "169.254.0.7")], eth1, &[],
                found("10.9.9.9"), "only link-local there: the global one on loopback"),
            (vec![down("eth1", "10.0.0.7"), on("eth0", "2001:db8::7")], eth1, &["eth0"], found("2001:db8::7"),
                "interface down: the other family"),
            (vec![on("eth0", "2001:db8::7")], none, &["eth0"], found("2001:db8::7"), "an IPv6 route alone"),
            (vec![on("eth0", "192.0.2.7")], none, &[], failed("no default routes found"), "no route at all"),
            (vec![on("eth0", "192.0.2.7")], eth1, &[], failed("unable to select an IP from default routes"),
                "a route to an interface without addresses"),
            (
                vec![
                    on_loopback("10.9.9.9"),
                    tunnel("10.8.0.1"),
                    down("eth0", "10.7.0.1"),
                    on("eth1", "2001:db8::1"),
                    on("eth2", "10.0.0.7"),
                ],
                no_file,
                &["eth1"],
                found("10.0.0.7"),
                "no routing table: up, no loopback, no tunnel, preferred family",
            ),
            (vec![tunnel("10.8.0.1")], no_file, &[],
                failed("no acceptable interface with global unicast address found on host"),
                "no routing table and no external interface"),
        ];
        for (addresses_there, default_v4, default_v6, expected, why) in rows {
            let mut facts = facts();
            facts.network = Network {
                addresses: addresses_there,
                default_v4: default_v4.map(|of| of.iter().map(|&i| i.to_owned()).collect()),
                default_v6: default_v6.iter().map(|&i: &&str| i.to_owned()).collect(),
                resolved: Vec::new(),
                is_resolving: false,
            };
            assert_eq!(addresses(&facts), expected, "{why}");
        }
    }
}
