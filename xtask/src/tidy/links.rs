//! Checks relative links of Markdown files: the file and the heading exist. Links to other sites
//! are not checked.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use pulldown_cmark::{Event, Parser, Tag, TagEnd};

use super::Source;

pub fn broken(sources: &[Source]) -> Vec<String> {
    let paths = sources.iter().map(|one| Path::new(&one.path));
    let paths: HashSet<&Path> = paths.flat_map(Path::ancestors).collect();
    let documents = || sources.iter().filter(|one| one.path.ends_with(".md"));
    let anchors_of = |one: &Source| (one.path.clone(), anchors(&one.text));
    let anchors: HashMap<String, HashSet<String>> = documents().map(anchors_of).collect();
    let why = |document: &str, target: &str| {
        let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
        let path = resolved(document, file)?;
        let known = anchors.get(&path);
        match known.is_some_and(|known| known.contains(anchor)) {
            _ if !paths.contains(Path::new(&path)) => Some("no such file"),
            false if !anchor.is_empty() => Some("no such heading"),
            _ => None,
        }
    };
    let mut broken = Vec::new();
    for Source { path, text } in documents() {
        for (line, target) in links(text) {
            let why = why(path, &target);
            broken.extend(why.map(|why| format!("{path}:{line}: link `{target}`: {why}")));
        }
    }
    broken
}

/// Resolves a link in `document` to a path from the root; `None` if it is to another site.
fn resolved(document: &str, file: &str) -> Option<String> {
    let mut path: Vec<&str> = match file {
        "" => return Some(document.to_owned()),
        // A URL, such as `https:` or `mailto:`.
        file if file.contains(':') => return None,
        file if file.starts_with('/') => Vec::new(),
        _ => document.split('/').collect(),
    };
    path.pop();
    for part in file.split('/') {
        match part {
            "" | "." => {}
            // There is no file above the root.
            ".." => _ = path.pop(),
            name => path.push(name),
        }
    }
    Some(path.join("/"))
}

/// Returns the targets of links and images, and of the attributes of HTML elements, with their
/// lines.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (event, range) in Parser::new(text).into_offset_iter() {
        let line = text[..range.start].lines().count().max(1);
        let targets = match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                vec![dest_url.into_string()]
            }
            Event::Html(html) | Event::InlineHtml(html) => {
                values(&html, &["src=\"", "href=\"", "srcset=\""])
            }
            _ => continue,
        };
        found.extend(targets.into_iter().map(|target| (line, target)));
    }
    found
}

/// Returns the anchors of the headings by GitHub's rule, and those that HTML elements define.
fn anchors(text: &str) -> HashSet<String> {
    let mut found = HashSet::new();
    let mut heading = String::new();
    for event in Parser::new(text) {
        match event {
            Event::Start(Tag::Heading { .. }) => heading.clear(),
            Event::Text(text) | Event::Code(text) => heading += &text,
            Event::End(TagEnd::Heading(_)) => {
                let slug = slug(&heading);
                let numbered = (1..).map(|n| format!("{slug}-{n}"));
                let mut names = std::iter::once(slug.clone()).chain(numbered);
                found.extend(names.find(|name| !found.contains(name)));
            }
            Event::Html(html) | Event::InlineHtml(html) => {
                found.extend(values(&html, &["id=\"", "name=\""]));
            }
            _ => {}
        }
    }
    found
}

/// Follows GitHub's rule: lower case, without punctuation, with a hyphen for each space.
fn slug(heading: &str) -> String {
    let letters = heading.chars().filter_map(|letter| match letter {
        ' ' => Some('-'),
        '-' | '_' => Some(letter),
        _ => letter.is_alphanumeric().then_some(letter),
    });
    letters.flat_map(char::to_lowercase).collect()
}

/// Returns the values of attributes; each of `names` ends with `="`.
fn values(html: &str, names: &[&str]) -> Vec<String> {
    let values = names.iter().flat_map(|name| html.split(name).skip(1));
    let value = |rest: &str| Some(rest.split_once('"')?.0.to_owned());
    values.filter_map(value).collect()
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
            ("b.md#two-words-1", None),
            ("../agent/src/app.rs", None),
            ("../agent/src", None),
            ("/docs/b.md", None),
            ("https://example.com/none#none", None),
            ("mailto:a@example.com", None),
            ("#here", None),
            ("#by-hand", None),
            ("#there", Some("no such heading")),
            ("b.md#three-words", Some("no such heading")),
            ("c.md", Some("no such file")),
            ("../../../b.md", Some("no such file")),
        ];
        for (target, expected) in table {
            let text = format!("# Here\n\n<a id=\"by-hand\"></a>\n`[a](b)` see [it]({target})\n");
            let other = "# Two words\n\n## Of `code`, [linked](a.md)!\n\n## Two words\n";
            let sources = [
                source("docs/a.md", &text),
                source("docs/b.md", other),
                source("agent/src/app.rs", ""),
            ];
            let expected = expected.map(|why| format!("docs/a.md:4: link `{target}`: {why}"));
            assert_eq!(broken(&sources), Vec::from_iter(expected), "{target}");
        }
    }

    #[test]
    fn links_of_html_elements_are_read_and_code_is_not() {
        let text = "```sh\n[no](fenced.md)\n```\n<a href=\"six.md\"><img src=\"seven.svg\"></a>\n";
        let mut found: Vec<_> = links(text).into_iter().map(|(_, target)| target).collect();
        found.sort();
        assert_eq!(found, ["seven.svg", "six.md"]);
    }
}
