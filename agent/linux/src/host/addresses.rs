//! Interface addresses and default routes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use nix::sys::socket::SockaddrStorage;
use nodepulse_core::reading::{InterfaceAddress, Network};

use super::{HostError, HostRoot, present};

/// `RTF_UP` and `RTF_REJECT` (`linux/route.h`).
const UP_OR_REJECT: u32 = 0x1 | 0x200;
const UP: u32 = 0x1;

/// Reads the candidates for the node's addresses, except DNS: `resolved` is empty. Cold.
///
/// Addresses are those of this process's network namespace; routes are read below the root.
pub fn network(root: &HostRoot) -> Result<Network, HostError> {
    let v4 = present(root.read_list("proc/net/route"))?;
    let v6 = present(root.read_list("proc/net/ipv6_route"))?;
    Ok(Network {
        addresses: interfaces()?,
        default_v4: v4.map(|text| default_v4(&text)),
        default_v6: v6.map_or_else(Vec::new, |text| default_v6(&text)),
        resolved: Vec::new(),
        is_resolving: false,
    })
}

fn interfaces() -> Result<Vec<InterfaceAddress>, HostError> {
    let all = getifaddrs().map_err(|errno| HostError::Interfaces {
        source: errno.into(),
    })?;
    let with_ip = all.filter_map(|one| {
        let has = |flag| one.flags.contains(flag);
        Some(InterfaceAddress {
            up: has(InterfaceFlags::IFF_UP),
            loopback: has(InterfaceFlags::IFF_LOOPBACK),
            point_to_point: has(InterfaceFlags::IFF_POINTOPOINT),
            ip: ip(one.address.as_ref()?)?,
            interface: one.interface_name,
        })
    });
    Ok(with_ip.collect())
}

/// Returns `None` for a link-layer address.
fn ip(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|a| IpAddr::V4(a.ip()));
    v4.or_else(|| address.as_sockaddr_in6().map(|a| IpAddr::V6(a.ip())))
}

/// Returns the interfaces of default routes in `/proc/net/route`, in order. Skips malformed lines
/// and the header.
///
/// The parser of procfs is not used: it fails on a metric above 2^31, which the kernel prints as a
/// negative number.
fn default_v4(routes: &str) -> Vec<String> {
    defaults(routes, |fields| {
        let [interface, destination, _, flags, _, _, _, mask, ..] = fields else {
            return None;
        };
        let zero = |hex| {
            u32::from_str_radix(hex, 16).ok().map(Ipv4Addr::from) == Some(Ipv4Addr::UNSPECIFIED)
        };
        (zero(destination) && zero(mask) && is_usable(flags)).then_some(*interface)
    })
}

/// Like [`default_v4`], of `/proc/net/ipv6_route`, without the kernel's reject route on `lo`.
fn default_v6(routes: &str) -> Vec<String> {
    defaults(routes, |fields| {
        let [destination, "00", _, _, _, _, _, _, flags, interface] = fields else {
            return None;
        };
        let destination = u128::from_str_radix(destination, 16).ok()?;
        let is_default = Ipv6Addr::from(destination).is_unspecified();
        (is_default && is_usable(flags) && *interface != "lo").then_some(*interface)
    })
}

fn is_usable(flags: &str) -> bool {
    u32::from_str_radix(flags, 16).is_ok_and(|flags| flags & UP_OR_REJECT == UP)
}

fn defaults<'a>(routes: &'a str, interface: impl Fn(&[&'a str]) -> Option<&'a str>) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for line in routes.lines() {
        let fields: Vec<_> = line.split_ascii_whitespace().collect();
        if let Some(name) = interface(&fields)
            && !found.iter().any(|known| known == name)
        {
            found.push(name.to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::scratch::Scratch;

    const V4: &str = include_str!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/fixtures/proc/debian12-6.18/proc/net/route"
    ));
    const V6: &str = include_str!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/fixtures/proc/debian12-6.18/proc/net/ipv6_route"
    ));

    #[test]
    fn default_routes_of_ipv4() {
        #[rustfmt::skip]
        let rows = [
            (V4, vec!["eth0"], "as captured"),
            ("eth1 00000000 01 0003 0 0 -1 00000000 0 0 0", vec!["eth1"], "a negative metric"),
            ("eth1 00000000 01 0002 0 0 0 00000000 0 0 0", vec![], "not up"),
            ("eth1 00000000 01 0201 0 0 0 00000000 0 0 0", vec![], "unreachable"),
            ("eth1 00000000 01 0003 0 0 0 00000080 0 0 0", vec![], "half of the internet"),
            ("eth1 00000000 01 0003", vec![], "a short line"),
            ("\u{fffd} \u{0} x\n\n", vec![], "garbage"),
            ("b 0 0 1 0 0 0 0 0\na 0 0 1 0 0 0 0 0\nb 0 0 1 0 0 0 0 0", vec!["b", "a"], "in order, each once"),
        ];
        for (text, expected, why) in rows {
            assert_eq!(default_v4(text), expected, "{why}");
        }
    }

    #[test]
    fn default_routes_of_ipv6() {
        let zero = "0".repeat(32);
        let line = |dest: &str, len, flags, interface| {
            format!("{dest} {len} {zero} 00 {zero} 00000400 00000002 00000000 {flags} {interface}")
        };
        #[rustfmt::skip]
        let rows = [
            (V6.to_owned(), vec!["eth0"], "as captured"),
            (line(&zero, "00", "00000003", "eth1"), vec!["eth1"], "up"),
            (line(&zero, "00", "00200200", "lo"), vec![], "the kernel's reject route"),
            (line(&zero, "00", "00000001", "lo"), vec![], "loopback"),
            (line(&zero, "08", "00000003", "eth1"), vec![], "a prefix"),
            (line(&"f".repeat(32), "00", "00000003", "eth1"), vec![], "not zero"),
            ("junk".to_owned(), vec![], "garbage"),
        ];
        for (text, expected, why) in &rows {
            assert_eq!(default_v6(text), *expected, "{why}");
        }
    }

    #[test]
    fn loopback_is_listed_and_missing_routes_are_none() {
        let dir = Scratch::new();
        let network = network(&dir.root()).unwrap();
        let lo = network
            .addresses
            .iter()
            .find(|a| a.ip == Ipv4Addr::LOCALHOST);
        assert!(lo.is_some_and(|a| a.loopback && a.up && a.interface == "lo"));
        assert_eq!((network.default_v4, network.default_v6), (None, vec![]));

        dir.write("proc/net/route", V4);
        let network = super::network(&dir.root()).unwrap();
        assert_eq!(network.default_v4, Some(vec!["eth0".to_owned()]));
    }
}
