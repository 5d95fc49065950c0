//! The Kubernetes release in `kubeletVersion`.
//!
//! A kubelet may not be newer than its API server, so the release of an older server is reported.
//! <https://kubernetes.io/releases/version-skew-policy/#kubelet>

use std::fmt;

/// A minor release of Kubernetes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release {
    major: u32,
    minor: u32,
}

impl Release {
    /// The newest release whose node status behavior nodepulse was compared with.
    pub const NEWEST: Self = Self {
        major: 1,
        minor: 36,
    };

    /// Parses an API server's `gitVersion`, such as `v1.33.2+k3s1`; `None` if it is not a version.
    pub fn parse(version: &str) -> Option<Self> {
        let mut parts = version.strip_prefix('v')?.splitn(3, '.');
        let major = parts.next()?.parse().ok()?;
        let minor = parts.next()?.parse().ok()?;
        parts.next()?;
        Some(Self { major, minor })
    }

    /// Returns the release to report to an API server of release `server`, if that is known.
    pub fn reported_to(server: Option<Self>) -> Self {
        server.map_or(Self::NEWEST, |server| server.min(Self::NEWEST))
    }
}

/// Writes the version of the first patch release, as a kubelet reports it.
impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}.{}.0", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of minor releases by which a kubelet may be older than its API server.
    const SKEW: u32 = 3;

    #[test]
    fn the_reported_release_is_within_the_skew_policy_of_every_supported_server() {
        for minor in 33..=37 {
            let server = Release { major: 1, minor };
            let reported = Release::reported_to(Some(server));
            assert!(reported <= server, "{reported} on {server}");
            assert!(reported.minor + SKEW >= minor, "{reported} on {server}");
        }
        assert_eq!(Release::reported_to(None), Release::NEWEST);
    }

    #[test]
    fn a_release_is_read_from_the_version_of_any_distribution() {
        let rows = [
            ("v1.33.0", Some("v1.33.0")),
            ("v1.35.4+k3s1", Some("v1.35.0")),
            ("v1.34.0-eks-1a2b3c4", Some("v1.34.0")),
            ("v1.37.0-alpha.1.12+0123456789abcd", Some("v1.37.0")),
            ("1.33.0", None),
            ("v1.33", None),
            ("v1.x.0", None),
            ("v1.-3.0", None),
            ("v99999999999.1.0", None),
            ("", None),
        ];
        for (version, expected) in rows {
            let release = Release::parse(version).map(|release| release.to_string());
            assert_eq!(release.as_deref(), expected, "{version}");
        }
    }
}
