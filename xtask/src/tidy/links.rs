//! Relative links of Markdown files: the file and the heading exist.
//! Links to other sites are not checked.

use std::collections::{HashMap, HashSet};

use pulldown_cmark::{Event, Parser, Tag, TagEnd};

use super::Source;

pub fn broken(sources: &[Source]) -> Vec<String> {
    let mut paths = HashSet::new();
    for source in sources {
        let mut path = source.path.as_str();
        paths.insert(path);
        while let Some((parent, _)) = path.rsplit_once('/') {
            paths.insert(parent);
            path = parent;
        }
    }
    let documents = || sources.iter().filter(|one| one.path.ends_with(".md"));
    let documents_anchors = documents().map(|one| (one.path.as_str(), anchors(&one.text)));
    let anchors: HashMap<&str, HashSet<String>> = documents_anchors.collect();
    let why = |document: &str, target: &str| {
        let (file, anchor) = match target.split_once('#') {
            Some((file, anchor)) => (file, Some(anchor)),
            None => (target, None),
        };
        let path = resolved(document, file)?;
        if !paths.contains(path.as_str()) {
            return Some("no such file");
        }
        let known = anchors.get(path.as_str());
        let exists = |anchor| known.is_some_and(|known| known.contains(anchor));
        anchor
            .filter(|anchor| !exists(*anchor))
            .map(|_| "no such heading")
    };
    let broken = documents().flat_map(|document| {
        let path = &document.path;
        links(&document.text)
            .into_iter()
            .filter_map(move |(line, target)| {
                let why = why(path, &target)?;
                Some(format!("{path}:{line}: link `{target}`: {why}"))
            })
    });
    broken.collect()
}

/// The path of `file` as linked from `document`, from the root. `None`: of another site.
fn resolved(document: &str, file: &str) -> Option<String> {
    let mut path: Vec<&str> = match file {
        "" => return Some(document.to_owned()),
        // `https:`, `mailto:`.
        file if file.contains(':') => return None,
        file if file.starts_with('/') => Vec::new(),
        _ => document.split('/').collect(),
    };
    path.pop();
    for part in file.split('/') {
        match part {
            "" | "." => {}
            // Above the root there is no file.
            ".." => _ = path.pop(),
            name => path.push(name),
        }
    }
    Some(path.join("/"))
}

/// The targets of links and images, and of the attributes of HTML elements, with their lines.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (event, range) in Parser::new(text).into_offset_iter() {
        let line = text[..range.start].lines().count().max(1);
        match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                found.push((line, dest_url.into_string()));
            }
            Event::Html(html) | Event::InlineHtml(html) => {
                let attributes = ["src=\"", "href=\"", "srcset=\""];
                let values = attributes.iter().flat_map(|name| values(&html, name));
                found.extend(values.map(|target| (line, target)));
            }
            _ => {}
        }
    }
    found
}

/// The anchors of the headings by GitHub's rule, and those that HTML elements define.
fn anchors(text: &str) -> HashSet<String> {
    let mut found = HashSet::new();
    let mut counts: HashMap<String, usize> = HashMap::new();
    let mut heading: Option<String> = None;
    for event in Parser::new(text) {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::Text(text) | Event::Code(text) => {
                heading.iter_mut().for_each(|heading| *heading += &text);
            }
            Event::End(TagEnd::Heading(_)) => {
                let slug = slug(&heading.take().unwrap_or_default());
                let count = counts.entry(slug.clone()).or_default();
                found.insert(match *count {
                    0 => slug,
                    n => format!("{slug}-{n}"),
                });
                *count += 1;
            }
            Event::Html(html) | Event::InlineHtml(html) => {
                let names = ["id=\"", "name=\""];
                found.extend(names.iter().flat_map(|name| values(&html, name)));
            }
            _ => {}
        }
    }
    found
}

/// GitHub's: lower case, without punctuation, with a hyphen for each space.
fn slug(heading: &str) -> String {
    let letters = heading.chars().filter_map(|letter| match letter {
        ' ' => Some('-'),
        '-' | '_' => Some(letter),
        _ => letter.is_alphanumeric().then_some(letter),
    });
    letters.flat_map(char::to_lowercase).collect()
}

/// The values of an attribute; `name` ends with `="`.
fn values(html: &str, name: &str) -> Vec<String> {
    let values = html.split(name).skip(1);
    let values = values.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned()));
    values.collect()
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
            let sources = [
                source("docs/a.md", &text),
                source(
                    "docs/b.md",
                    "# Two words\n\n## Of `code`, [linked](a.md)!\n\n## Two words\n",
                ),
                source("agent/src/app.rs", ""),
            ];
            let expected = expected.map(|why| format!("docs/a.md:4: link `{target}`: {why}"));
            assert_eq!(broken(&sources), Vec::from_iter(expected), "{target}");
        }
    }

    #[test]
    fn links_of_html_elements_are_read_and_code_is_not() {
        let text = "```sh\n[no](fenced.md)\n```\n<a href=\"six.md\"><img src=\"seven.svg\"></a>\n";
        let found: HashSet<_> = links(text).into_iter().map(|(_, target)| target).collect();
        assert_eq!(
            found,
            HashSet::from(["six.md", "seven.svg"].map(str::to_owned))
        );
    }
}
