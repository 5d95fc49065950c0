//! `/etc/resolv.conf` and `/etc/hosts`, parsed as by the C library of the release build (musl).

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6};
use std::time::Duration;

use nix::net::if_::if_nametoindex;

/// Maximum number of name servers; further ones are ignored.
const MAX_SERVERS: usize = 3;
/// Maximum number of search domains. The C library has a limit in bytes instead.
const MAX_DOMAINS: usize = 32;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Conf {
    /// The name servers, all of which are queried at once.
    pub(super) servers: Vec<SocketAddr>,
    pub(super) search: Vec<String>,
    /// A name with fewer dots is tried in each search domain first.
    pub(super) ndots: usize,
    /// Timeout of all attempts of one name.
    pub(super) timeout: Duration,
    pub(super) attempts: u32,
}

impl Conf {
    pub(super) fn parse(text: &str, port: u16) -> Self {
        let mut conf = Self {
            servers: Vec::new(),
            search: Vec::new(),
            ndots: 1,
            timeout: Duration::from_secs(5),
            attempts: 2,
        };
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            match words.next() {
                Some("nameserver") => {
                    let server = words.next().and_then(|word| server(word, port));
                    conf.servers.extend(server);
                }
                Some("search" | "domain") => {
                    conf.search = words.take(MAX_DOMAINS).map(str::to_owned).collect();
                }
                Some("options") => words.for_each(|option| conf.set(option)),
                Some(_) | None => {}
            }
        }
        conf.servers.truncate(MAX_SERVERS);
        if conf.servers.is_empty() {
            conf.servers.push((Ipv4Addr::LOCALHOST, port).into());
        }
        conf
    }

    fn set(&mut self, option: &str) {
        let Some((name, value)) = option.split_once(':') else {
            return;
        };
        let Ok(value) = value.parse::<u32>() else {
            return;
        };
        match name {
            "ndots" => self.ndots = usize::try_from(value.min(15)).unwrap_or_default(),
            "timeout" => self.timeout = Duration::from_secs(value.clamp(1, 60).into()),
            "attempts" => self.attempts = value.clamp(1, 10),
            _ => {}
        }
    }

    /// Returns the names to try for `name`, in order.
    pub(super) fn candidates(&self, name: &str) -> Vec<String> {
        let bare = name.strip_suffix('.').unwrap_or(name);
        let dots = bare.matches('.').count();
        let mut candidates = Vec::new();
        if bare.len() == name.len() && dots < self.ndots {
            let domains = self.search.iter().map(|domain| domain.trim_matches('.'));
            let domains = domains.filter(|domain| !domain.is_empty());
            candidates.extend(domains.map(|domain| format!("{bare}.{domain}")));
        }
        candidates.push(bare.to_owned());
        candidates
    }
}

/// Parses an address; a link-local one includes its link.
fn server(word: &str, port: u16) -> Option<SocketAddr> {
    let Some((ip, link)) = word.split_once('%') else {
        return Some((word.parse::<IpAddr>().ok()?, port).into());
    };
    let index = link.parse().or_else(|_| if_nametoindex(link)).ok()?;
    Some(SocketAddrV6::new(ip.parse().ok()?, port, 0, index).into())
}

pub(super) fn hosts(text: &str, name: &str) -> Vec<IpAddr> {
    let name = name.strip_suffix('.').unwrap_or(name);
    let mut found = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_ascii_whitespace();
        let Some(Ok(ip)) = words.next().map(str::parse) else {
            continue;
        };
        if words.any(|word| word.eq_ignore_ascii_case(name)) && !found.contains(&ip) {
            found.push(ip);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Conf {
        Conf::parse(text, 53)
    }

    #[test]
    fn the_resolv_conf_of_a_pod_is_parsed() {
        let conf = parse(
            "nameserver 10.96.0.10\nsearch default.svc.cluster.local svc.cluster.local\n\
             options ndots:5 timeout:30 attempts:4 edns0\n",
        );
        assert_eq!(conf.servers, ["10.96.0.10:53".parse().unwrap()]);
        assert_eq!(conf.timeout, Duration::from_secs(30));
        assert_eq!((conf.ndots, conf.attempts), (5, 4));
        #[rustfmt::skip]
        let rows: [(&str, &[&str]); 3] = [
            ("api.example.com",
                &["api.example.com.default.svc.cluster.local", "api.example.com.svc.cluster.local", "api.example.com"]),
            ("api.example.com.", &["api.example.com"]),
            ("a.b.c.d.e.f", &["a.b.c.d.e.f"]),
        ];
        for (name, expected) in rows {
            assert_eq!(conf.candidates(name), expected, "{name}");
        }
    }

    #[test]
    fn invalid_and_excessive_options_are_replaced_by_valid_ones() {
        assert_eq!(parse("").servers, ["127.0.0.1:53".parse().unwrap()]);
        let conf = parse(
            "nameserver none\nnameserver ::1\nnameserver fe80::1%lo\nnameserver 192.0.2.1\n\
             nameserver 192.0.2.2\nsearch a\nsearch . b\n\
             options timeout:0 attempts:99999999999 ndots:-1\noptions attempts:0 ndots:77",
        );
        let scoped: SocketAddr = SocketAddrV6::new("fe80::1".parse().unwrap(), 53, 0, 1).into();
        let expected = [
            "[::1]:53".parse().unwrap(),
            scoped,
            "192.0.2.1:53".parse().unwrap(),
        ];
        assert_eq!(conf.servers, expected);
        assert_eq!(conf.timeout, Duration::from_secs(1));
        assert_eq!((conf.attempts, conf.ndots), (1, 15));
        assert_eq!(conf.candidates("x"), ["x.b", "x"]);
    }

    #[test]
    fn hosts_contains_every_address_of_a_name() {
        let text = "127.0.0.1 localhost\n# 192.0.2.9 api\n192.0.2.1\tAPI api.example # x\n\
                    nonsense api\n2001:db8::1 api\n192.0.2.1 api\n";
        let ips: [IpAddr; 2] = ["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()];
        assert_eq!(hosts(text, "api"), ips);
        assert_eq!(hosts(text, "api.example."), ips[..1]);
        assert_eq!(hosts(text, "x"), [] as [IpAddr; 0]);
    }
}
