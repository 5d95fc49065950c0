//! This machine's Debian mirrors, from its apt sources, for suites other than this machine's.

use std::path::Path;

/// If nothing is configured, as on another distribution.
const MAIN: &str = "http://deb.debian.org/debian";
const SECURITY: &str = "http://deb.debian.org/debian-security";

/// Suites that have left the mirrors. Their indexes are signed, and have long expired.
const ARCHIVE: &str = "http://archive.debian.org/debian";
const ARCHIVE_SECURITY: &str = "http://archive.debian.org/debian-security";

/// The suites of Debian's own sources; others, Ubuntu's included, have other suites.
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
    /// More options of each source.
    options: &'static str,
}

/// A sources file for `suites`, checked with the keys of `keyring`.
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

/// The mirrors in this machine's sources.
pub fn configured() -> Mirrors {
    let mut files = vec![Path::new("/etc/apt/sources.list").to_owned()];
    files.extend(super::entries(Path::new("/etc/apt/sources.list.d")));
    files.sort();
    let mut found = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        match file.extension().and_then(|extension| extension.to_str()) {
            Some("list") => found.extend(one_line(&text)),
            Some("sources") => found.extend(stanzas(&text)),
            _ => {}
        }
    }
    chosen(&found)
}

/// The archive of suites that have left the mirrors.
pub fn archive() -> Mirrors {
    Mirrors {
        main: ARCHIVE.to_owned(),
        security: ARCHIVE_SECURITY.to_owned(),
        options: " check-valid-until=no",
    }
}

/// Mirror and suite.
type MirrorSource = (String, String);

fn chosen(sources: &[MirrorSource]) -> Mirrors {
    let first = |security: bool, default: &str| {
        let fits = |(_, suite): &&MirrorSource| {
            let release = suite.split(['-', '/']).next().unwrap_or_default();
            let is_main = suite == release;
            let is_security = suite.ends_with("-security");
            RELEASES.contains(&release) && if security { is_security } else { is_main }
        };
        let found = sources.iter().find(fits).map(|(mirror, _)| mirror.clone());
        found.unwrap_or_else(|| default.to_owned())
    };
    Mirrors {
        main: first(false, MAIN),
        security: first(true, SECURITY),
        options: "",
    }
}

/// Of `deb [options] mirror suite component …`.
fn one_line(text: &str) -> Vec<MirrorSource> {
    let source = |line: &str| {
        let rest = line.trim().strip_prefix("deb ")?.trim_start();
        let rest = match rest.strip_prefix('[') {
            Some(options) => options.split_once(']')?.1,
            None => rest,
        };
        let mut words = rest.split_whitespace();
        Some((words.next()?.to_owned(), words.next()?.to_owned()))
    };
    text.lines().filter_map(source).collect()
}

/// Of stanzas with `URIs:` and `Suites:`.
fn stanzas(text: &str) -> Vec<MirrorSource> {
    let mut sources = Vec::new();
    for stanza in text.split("\n\n") {
        let field = |name: &str| {
            let line = stanza.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_default().split_whitespace()
        };
        let off = field("Enabled:").any(|word| word == "no");
        for uri in field("URIs:").filter(|_| !off) {
            sources.extend(field("Suites:").map(|suite| (uri.to_owned(), suite.to_owned())));
        }
    }
    sources
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
    fn the_machines_mirrors_are_read_from_either_form() {
        let lines = "# deb http://old stable main\ndeb-src http://s sid main\n\
                     deb http://m/updates bookworm-updates main\n\
                     deb [signed-by=/k arch=amd64] http://m/debian bookworm main contrib\n\
                     deb http://m/security bookworm-security main\n";
        let stanzas_ = "Types: deb\n# old\nURIs: http://n/debian\nSuites: trixie trixie-updates\n\n\
                        Types: deb\nURIs: http://n/security\nSuites: trixie-security\n";
        let off = "Enabled: no\nURIs: http://n/debian\nSuites: trixie\n";
        let table = [
            (
                one_line(lines),
                mirrors("http://m/debian", "http://m/security"),
            ),
            (
                stanzas(stanzas_),
                mirrors("http://n/debian", "http://n/security"),
            ),
            (stanzas(off), mirrors(MAIN, SECURITY)),
            (
                one_line(
                    "deb http://u/ubuntu noble main\ndeb http://u/ubuntu noble-security main\n",
                ),
                mirrors(MAIN, SECURITY),
            ),
        ];
        for (sources, expected) in table {
            assert_eq!(chosen(&sources), expected, "{sources:?}");
        }
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
