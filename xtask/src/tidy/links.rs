//! Relative links of Markdown files: the file and the heading exist.
//! Links to other sites are not checked.

use std::collections::{HashMap, HashSet};

use super::Source;

pub fn broken(sources: &[Source]) -> Vec<String> {
    let tree = Tree::of(sources);
    let documents = sources.iter().filter(|source| is_markdown(&source.path));
    let broken = documents.flat_map(|document| {
        let found = links(&document.text).into_iter();
        found.filter_map(|link| {
            let why = tree.broken(&document.path, &link.target)?;
            let (path, line, target) = (&document.path, link.line, &link.target);
            Some(format!("{path}:{line}: link `{target}`: {why}"))
        })
    });
    broken.collect()
}

fn is_markdown(path: &str) -> bool {
    path.ends_with(".md")
}

/// What a link can lead to.
struct Tree<'a> {
    /// Every file, and every directory that contains one.
    paths: HashSet<&'a str>,
    /// The anchors of each Markdown file.
    anchors: HashMap<&'a str, HashSet<String>>,
}

impl<'a> Tree<'a> {
    fn of(sources: &'a [Source]) -> Self {
        let mut paths = HashSet::from([""]);
        for source in sources {
            let mut path = source.path.as_str();
            paths.insert(path);
            while let Some((parent, _)) = path.rsplit_once('/') {
                paths.insert(parent);
                path = parent;
            }
        }
        let documents = sources.iter().filter(|source| is_markdown(&source.path));
        let anchors = documents.map(|source| (source.path.as_str(), anchors(&source.text)));
        Self {
            paths,
            anchors: anchors.collect(),
        }
    }

    /// Why `target` cannot be followed from `document`; `None` if it can, or is another site's.
    fn broken(&self, document: &str, target: &str) -> Option<&'static str> {
        if has_scheme(target) {
            return None;
        }
        let (file, anchor) = match target.split_once('#') {
            Some((file, anchor)) => (file, Some(anchor)),
            None => (target, None),
        };
        let path = if file.is_empty() {
            document.to_owned()
        } else {
            let Some(path) = resolved(document, file) else {
                return Some("it leads out of the repository");
            };
            path
        };
        if !self.paths.contains(path.as_str()) {
            return Some("no such file");
        }
        let known = self.anchors.get(path.as_str());
        let there = |anchor| known.is_some_and(|anchors| anchors.contains(anchor));
        match anchor {
            Some(anchor) if !there(anchor) => Some("no such heading"),
            _ => None,
        }
    }
}

/// `https:`, `mailto:` and the like.
fn has_scheme(target: &str) -> bool {
    let Some((scheme, _)) = target.split_once(':') else {
        return false;
    };
    !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// The path of `file` as linked from `document`, from the root; `None` if it is outside.
fn resolved(document: &str, file: &str) -> Option<String> {
    let mut path: Vec<&str> = match file.strip_prefix('/') {
        Some(_) => Vec::new(),
        None => document.split('/').collect(),
    };
    path.pop();
    for part in file.split('/') {
        match part {
            "" | "." => {}
            ".." => _ = path.pop()?,
            name => path.push(name),
        }
    }
    Some(path.join("/"))
}

#[derive(Debug, PartialEq, Eq)]
struct Link {
    line: usize,
    target: String,
}

/// Inline links, images, definitions of references, and the attributes of HTML elements.
fn links(text: &str) -> Vec<Link> {
    let mut found = Vec::new();
    for (line, prose) in prose(text) {
        let mut add = |target: &str| {
            let target = target.trim_matches(['<', '>']).to_owned();
            found.push(Link { line, target });
        };
        for (at, _) in prose.match_indices("](") {
            let rest = &prose[at + 2..];
            let end = rest.find([')', ' ']).unwrap_or(rest.len());
            add(&rest[..end]);
        }
        let definition = prose.trim_start().strip_prefix('[');
        if let Some((_, target)) = definition.and_then(|rest| rest.split_once("]: ")) {
            add(target.split_whitespace().next().unwrap_or_default());
        }
        for attribute in ["src=\"", "href=\"", "srcset=\""] {
            for (at, _) in prose.match_indices(attribute) {
                let rest = &prose[at + attribute.len()..];
                add(rest.split('"').next().unwrap_or_default());
            }
        }
    }
    found
}

/// The anchors of the headings by GitHub's rule, and those that HTML elements define.
fn anchors(text: &str) -> HashSet<String> {
    let mut found = HashSet::new();
    let mut counts: HashMap<String, usize> = HashMap::new();
    for (_, line) in unfenced(text) {
        for attribute in ["id=\"", "name=\""] {
            for (at, _) in line.match_indices(attribute) {
                let rest = &line[at + attribute.len()..];
                found.insert(rest.split('"').next().unwrap_or_default().to_owned());
            }
        }
        let Some(heading) = heading(line) else {
            continue;
        };
        let slug = slug(&shown(heading));
        let count = counts.entry(slug.clone()).or_default();
        let anchor = match *count {
            0 => slug,
            n => format!("{slug}-{n}"),
        };
        *count += 1;
        found.insert(anchor);
    }
    found
}

fn heading(line: &str) -> Option<&str> {
    let text = line.trim_start_matches('#');
    let level = line.len() - text.len();
    ((1..=6).contains(&level) && text.starts_with(' ')).then(|| text.trim())
}

/// A heading without the targets of its links.
fn shown(heading: &str) -> String {
    let mut shown = String::new();
    let mut rest = heading;
    while let Some((before, after)) = rest.split_once("](") {
        shown += before;
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    shown + rest
}

/// GitHub's: lower case, without punctuation, with a hyphen for each space.
fn slug(heading: &str) -> String {
    let kept = heading.chars().filter_map(|letter| match letter {
        ' ' => Some('-'),
        '-' | '_' => Some(letter),
        _ => letter.is_alphanumeric().then_some(letter),
    });
    kept.flat_map(char::to_lowercase).collect()
}

/// The lines outside fenced blocks, without code spans, with their numbers.
fn prose(text: &str) -> Vec<(usize, String)> {
    let lines = unfenced(text);
    lines
        .map(|(line, text)| (line, without_code(text)))
        .collect()
}

fn unfenced(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(n, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((n + 1, line))
    })
}

fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("`")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::source;

    #[test]
    fn a_link_to_a_file_or_heading_that_does_not_exist_is_found_with_its_line() {
        let table = [
            ("b.md", None),
            ("./b.md#two-words", None),
            ("b.md#of-code-linked", None),
            ("../agent/src/app.rs", None),
            ("../agent/src", None),
            ("img/a.svg", None),
            ("/docs/b.md", None),
            ("https://example.com/none#none", None),
            ("mailto:a@example.com", None),
            ("#here", None),
            ("#there", Some("no such heading")),
            ("b.md#three-words", Some("no such heading")),
            ("c.md", Some("no such file")),
            ("../b.md", Some("no such file")),
            ("../agent/src/app.rs#L1", Some("no such heading")),
            ("../../b.md", Some("it leads out of the repository")),
        ];
        for (target, expected) in table {
            let sources = [
                source("docs/a.md", &format!("# Here\n\nsee [it]({target})\n")),
                source(
                    "docs/b.md",
                    "# Two words\n\n## Of `code`, [linked](a.md)!\n",
                ),
                source("docs/img/a.svg", ""),
                source("agent/src/app.rs", ""),
            ];
            let expected = expected.map(|why| format!("docs/a.md:3: link `{target}`: {why}"));
            assert_eq!(broken(&sources), Vec::from_iter(expected), "{target}");
        }
    }

    #[test]
    fn each_form_of_a_link_is_read_and_code_is_not() {
        let text = "a [b](one.md) and [c](two.md \"title\")\n\
                    `[no](code.md)` [`d`](three.md), ![e](four.svg)\n\
                    ```sh\n[no](fenced.md)\n```\n\
                    [ref]: five.md \"title\"\n\
                    <a href=\"six.md\"><img src=\"seven.svg\"></a> [f](<eight.md>)\n";
        let found: Vec<_> = links(text)
            .into_iter()
            .map(|link| (link.line, link.target))
            .collect();
        let expected = [
            (1, "one.md"),
            (1, "two.md"),
            (2, "three.md"),
            (2, "four.svg"),
            (6, "five.md"),
            (7, "eight.md"),
            (7, "seven.svg"),
            (7, "six.md"),
        ];
        assert_eq!(
            found,
            expected.map(|(line, target)| (line, target.to_owned()))
        );
    }

    #[test]
    fn anchors_are_those_of_github() {
        let table = [
            ("## Two words", "two-words"),
            ("# `code`: what it is?", "code-what-it-is"),
            ("### snake_case, kebab-case", "snake_case-kebab-case"),
            ("## An OOM kill, step by step", "an-oom-kill-step-by-step"),
            ("## A & B", "a--b"),
            ("## Größe", "größe"),
            ("## [Linked](b.md#c) text", "linked-text"),
            ("<a id=\"by-hand\"></a>", "by-hand"),
        ];
        for (line, expected) in table {
            let expected = HashSet::from([expected.to_owned()]);
            assert_eq!(anchors(line), expected, "{line}");
        }
        let twice = anchors("# A\n\n```sh\n# Not a heading\n```\n## A\n#tag\n####### seven\n");
        assert_eq!(twice, HashSet::from(["a".to_owned(), "a-1".to_owned()]));
    }
}
