//! Finds this machine's Debian mirrors in its apt sources, for other suites.

use crate::repo::{command, output};

/// The mirror if none is configured, as on another distribution.
const MAIN: &str = "http://deb.debian.org/debian";
const SECURITY: &str = "http://deb.debian.org/debian-security";

/// The mirror of suites that have left the others. Their indexes are signed, but have expired.
const ARCHIVE: &str = "http://archive.debian.org/debian";
const ARCHIVE_SECURITY: &str = "http://archive.debian.org/debian-security";

/// The suites of Debian. Ubuntu and others have different suites.
const RELEASES: &[&str] = &[
    "bullseye",
    "bookworm",
    "trixie",
    "forky",
    "duke",
    "sid",
    "oldoldstable",
    "oldstable",
    "stable",
    "testing",
    "unstable",
];

#[derive(Debug, PartialEq, Eq)]
pub struct Mirrors {
    main: String,
    security: String,
    /// Further options of each source.
    options: &'static str,
}

/// Returns a sources file for `suites`, checked with the keys of `keyring`.
pub fn sources(suites: &[String], arch: &str, keyring: &str, mirrors: &Mirrors) -> String {
    let line = |suite: &String| {
        let mirror = if suite.ends_with("-security") {
            &mirrors.security
        } else {
            &mirrors.main
        };
        // `target`: no descriptions for software centres, which are as large as the index.
        format!(
            "deb [arch={arch} target=Packages signed-by={keyring}{}] {mirror} {suite} main\n",
            mirrors.options
        )
    };
    suites.iter().map(line).collect()
}

/// Returns the mirrors in this machine's sources.
pub fn configured() -> Mirrors {
    // Prints URLs without downloading, so that it needs neither root nor the network.
    let mut update = command("apt-get");
    let printed = output(update.args(["update", "--print-uris"]));
    chosen(&printed.unwrap_or_default())
}

pub fn archive() -> Mirrors {
    Mirrors {
        main: ARCHIVE.to_owned(),
        security: ARCHIVE_SECURITY.to_owned(),
        options: " check-valid-until=no",
    }
}

/// Parses mirror and suite.
fn source(line: &str) -> Option<(&str, &str)> {
    let (uri, _) = line.strip_prefix('\'')?.split_once("/InRelease'")?;
    uri.split_once("/dists/")
}

/// Parses lines such as `'http://deb.debian.org/debian/dists/sid/InRelease' …`.
fn chosen(printed: &str) -> Mirrors {
    let first = |security: bool, default: &str| {
        let fits = |(_, suite): &(&str, &str)| {
            let release = suite.split(['-', '/']).next().unwrap_or_default();
            let is_main = *suite == release;
            let is_security = suite.ends_with("-security");
            RELEASES.contains(&release) && if security { is_security } else { is_main }
        };
        let found = printed.lines().filter_map(source).find(fits);
        found.map_or(default, |(mirror, _)| mirror).to_owned()
    };
    Mirrors {
        main: first(false, MAIN),
        security: first(true, SECURITY),
        options: "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mirrors(main: &str, security: &str) -> Mirrors {
        Mirrors {
            main: main.to_owned(),
            security: security.to_owned(),
            options: "",
        }
    }

    #[test]
    fn the_machines_mirrors_are_those_of_debian() {
        let debian = "'http://m/updates/dists/bookworm-updates/InRelease' a 0 \n\
                      'http://m/debian/dists/bookworm/InRelease' b 0 \n\
                      'http://m/security/dists/bookworm-security/InRelease' c 0 \n\
                      'http://m/debian/dists/bookworm/main/binary-amd64/Packages.xz' d 0 \n";
        let other = "'http://u/ubuntu/dists/noble/InRelease' a 0 \n\
                     'http://u/ubuntu/dists/noble-security/InRelease' b 0 \n";
        let expected = mirrors("http://m/debian", "http://m/security");
        assert_eq!(chosen(debian), expected);
        assert_eq!(chosen(other), mirrors(MAIN, SECURITY));
    }

    #[test]
    fn security_suites_come_from_the_security_mirror() {
        let suites = ["sid".to_owned(), "bookworm-security".to_owned()];
        let expected = "deb [arch=amd64 target=Packages signed-by=/k] http://m sid main\n\
                        deb [arch=amd64 target=Packages signed-by=/k] http://s bookworm-security main\n";
        assert_eq!(
            sources(&suites, "amd64", "/k", &mirrors("http://m", "http://s")),
            expected
        );
    }

    #[test]
    fn indexes_of_the_archive_are_signed_and_may_be_old() {
        let expected = "deb [arch=arm64 target=Packages signed-by=/k check-valid-until=no] \
                        http://archive.debian.org/debian-security bullseye-security main\n";
        let suites = ["bullseye-security".to_owned()];
        assert_eq!(sources(&suites, "arm64", "/k", &archive()), expected);
    }
}
