//! Collects the licences and notices of everything that is linked into a program, as one text: a
//! list of the parts, and each different text once.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::files;
use crate::linked::Linked;
use crate::repo::{Repo, command, output};

/// Prefixes of the names of files with licences.
const NAMES: &[&str] = &[
    "copying",
    "copyright",
    "licence",
    "license",
    "notice",
    "unlicense",
];

/// The licence whose text is used for crates that have it and contain no such file.
const APACHE: &str = "Apache-2.0";

/// A part of a program, and the texts that must accompany it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    pub title: String,
    pub licence: String,
    pub texts: Vec<String>,
}

pub fn parts(repo: &Repo, crates: &[Linked], target: &str) -> Result<Vec<Part>> {
    let sources = sources(repo, target)?;
    let apache = repo.read("LICENSE")?;
    let mut parts = Vec::new();
    for linked in crates {
        let Linked {
            name,
            version,
            licence,
            ..
        } = linked;
        let named = (name.clone(), version.clone());
        let source = sources
            .get(&named)
            .with_context(|| format!("no source of {name} {version}"))?;
        let mut texts = texts(source)?;
        if texts.is_empty() {
            if !licence.contains(APACHE) {
                bail!("{name} {version} ({licence}) has no file with its licence");
            }
            texts.push(apache.clone());
        }
        parts.push(Part {
            title: format!("{name} {version}"),
            licence: licence.clone(),
            texts,
        });
    }
    parts.extend(toolchain(repo)?);
    Ok(parts)
}

/// Returns the standard library, and the C library that rustc contains for its musl targets.
fn toolchain(repo: &Repo) -> Result<[Part; 2]> {
    let mut rustc = command("rustc");
    rustc.current_dir(&repo.root).args(["--print", "sysroot"]);
    let sysroot = output(&mut rustc)?;
    let notices = Path::new(sysroot.trim()).join("share/doc/rust/COPYRIGHT-library.html");
    let html = files::text(&notices)?;
    let std = Part {
        title: format!("Rust standard library {}", repo.toolchain.channel),
        licence: "MIT OR Apache-2.0".to_owned(),
        texts: vec![plain(&html)],
    };
    let musl = Part {
        title: "musl C library".to_owned(),
        licence: "MIT".to_owned(),
        texts: vec![repo.read("deploy/packages/musl-copyright")?],
    };
    Ok([std, musl])
}

/// Returns the directory of each crate, by name and version.
fn sources(repo: &Repo, target: &str) -> Result<BTreeMap<(String, String), PathBuf>> {
    let mut metadata = repo.cargo();
    metadata.args(["metadata", "--format-version", "1"]);
    metadata.args(["--filter-platform", target]);
    let json: serde_json::Value = serde_json::from_str(&output(&mut metadata)?)?;
    let packages = json["packages"].as_array().context("no packages")?;
    let source = |package: &serde_json::Value| {
        let named = (
            package["name"].as_str()?.to_owned(),
            package["version"].as_str()?.to_owned(),
        );
        let manifest = Path::new(package["manifest_path"].as_str()?);
        Some((named, manifest.parent()?.to_owned()))
    };
    Ok(packages.iter().filter_map(source).collect())
}

/// Reads the files in the crate's directory that have a licence's name.
fn texts(source: &Path) -> Result<Vec<String>> {
    let has_licence_name = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = name.to_lowercase();
        NAMES.iter().any(|start| name.starts_with(start))
    };
    let mut files = files::entries(source)?;
    files.retain(|path| path.is_file() && has_licence_name(path));
    let read = |file: &PathBuf| Ok(String::from_utf8_lossy(&files::read(file)?).into_owned());
    files.iter().map(read).collect()
}

/// Converts HTML to text without tags, and with at most one empty line in a row.
fn plain(html: &str) -> String {
    let mut text = String::new();
    let mut is_tag = false;
    for letter in html.chars() {
        match letter {
            '<' => is_tag = true,
            '>' => is_tag = false,
            _ if is_tag => {}
            _ => text.push(letter),
        }
    }
    let decoded = [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&#39;", "'"),
    ];
    for (entity, letter) in decoded {
        text = text.replace(entity, letter);
    }
    let mut lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.dedup_by(|a, b| a.trim().is_empty() && b.trim().is_empty());
    lines.join("\n").replace("&amp;", "&")
}

/// Formats the list of the parts with the numbers of their texts, then the texts.
pub fn text(title: &str, parts: &[Part]) -> String {
    let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
    let mut texts = String::new();
    let mut list = format!(
        "{title} contains the following parts. Each has the licence that its line names; the numbers\n\
         refer to the texts below.\n\n"
    );
    for part in parts {
        let mut of_part = BTreeSet::new();
        for text in &part.texts {
            let next = numbers.len() + 1;
            // Texts that differ only in spaces and line breaks are the same.
            let same: Vec<&str> = text.split_whitespace().collect();
            let number = *numbers.entry(same.join(" ")).or_insert(next);
            if number == next {
                let text = text.trim_matches('\n');
                let _infallible = write!(texts, "\n{}\n[{number}]\n\n{text}\n", "=".repeat(80));
            }
            of_part.insert(number);
        }
        let of_part: Vec<String> = of_part.iter().map(|number| format!("[{number}]")).collect();
        let Part { title, licence, .. } = part;
        let _infallible = writeln!(list, "{title}: {licence} {}", of_part.join(" "));
    }
    list + &texts
}

/// Returns names and versions of the crates whose paths are in the program, in messages of panics.
pub fn mentioned(program: &[u8]) -> BTreeSet<String> {
    const REGISTRY: &[u8] = b"/registry/src/";
    let mut found = BTreeSet::new();
    let mut rest = program;
    while let Some(at) = find(rest, REGISTRY) {
        rest = rest.get(at + REGISTRY.len()..).unwrap_or_default();
        let path = rest.get(..256).unwrap_or(rest);
        // The registry precedes the crate's directory, at which paths in debug lists end.
        let name = path.split(|byte| *byte == b'/').nth(1).unwrap_or_default();
        let ends = |byte: &u8| !(byte.is_ascii_alphanumeric() || b"-_.+".contains(byte));
        let name = name.split(ends).next().unwrap_or_default();
        found.insert(String::from_utf8_lossy(name).into_owned());
    }
    found
}

pub fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes
        .windows(wanted.len())
        .position(|window| window == wanted)
}

/// Returns the crates that the program mentions and `crates` does not contain.
pub fn missing(program: &[u8], crates: &[Linked]) -> Vec<String> {
    let listed: BTreeSet<String> = crates
        .iter()
        .map(|linked| format!("{}-{}", linked.name, linked.version))
        .collect();
    mentioned(program).difference(&listed).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linked::linked;
    use crate::repo::MUSL_TARGET;

    #[test]
    fn every_linked_crate_has_a_licence_and_a_text() {
        let repo = Repo::find().unwrap();
        let crates = linked(&repo, "nodepulse", MUSL_TARGET).unwrap();
        let parts = parts(&repo, &crates, MUSL_TARGET).unwrap();
        for Linked { name, version, .. } in &crates {
            let title = format!("{name} {version}");
            let part = parts.iter().find(|part| part.title == title).unwrap();
            assert!(!part.licence.is_empty(), "{title}");
            let longest = part.texts.iter().map(String::len).max();
            assert!(longest > Some(400), "{title}: {longest:?}");
        }
        let text = text("nodepulse", &parts);
        for title in ["tokio 1.", "aya 0.14.0", "musl C library", "Rust standard"] {
            assert!(text.contains(&format!("\n{title}")), "{title}");
        }
        assert!(text.contains("Rich Felker"));
    }

    #[test]
    fn equal_texts_are_printed_once() {
        let part = |title: &str, text: &str| Part {
            title: title.to_owned(),
            licence: "MIT".to_owned(),
            texts: vec![text.to_owned()],
        };
        let parts = [
            part("a 1", "one\ntwo"),
            part("b 1", "one two\n"),
            part("c 1", "3"),
        ];
        let text = text("program 1", &parts);
        assert!(
            text.contains("\na 1: MIT [1]\nb 1: MIT [1]\nc 1: MIT [2]\n"),
            "{text}"
        );
        assert_eq!(text.matches("two").count(), 1, "{text}");
    }

    #[test]
    fn a_crate_that_only_the_program_mentions_is_missing() {
        let program = b"\0/root/.cargo/registry/src/index-1/tokio-1.0.0/src/lib.rs\0\
                        /c/registry/src/index-1/tokio-1.0.0\0src/a.rs\0\
                        /c/registry/src/index-1/ring-0.17.0/a.rs/registry/src/x";
        let tokio = Linked {
            name: "tokio".to_owned(),
            version: "1.0.0".to_owned(),
            licence: "MIT".to_owned(),
            checksum: String::new(),
        };
        assert_eq!(missing(program, &[tokio]), ["", "ring-0.17.0"]);
    }

    #[test]
    fn notices_in_html_become_plain_text() {
        let html = "<p><b>a</b> &lt;b@c&gt;</p>\n\n  \n<pre>x &amp;lt; y</pre>";
        assert_eq!(plain(html), "a <b@c>\n\nx &lt; y");
    }
}
