//! A minimal parser of Rust for the rules: code without comments and tests, its functions, and
//! the paths that it names.

use std::ops::RangeInclusive;

/// In front of an item that only tests contain.
const TEST_MARK: &str = "#[cfg(test)]";
/// In front of an item that only the documentation contains, such as an import for a link.
const DOC_MARK: &str = "#[cfg(doc)]";

/// `text` with comments, strings and character literals blanked out. Lines and columns stay.
pub fn code_only(text: &str) -> String {
    parts(text, Part::Code)
}

/// `text` with everything but comments, strings and character literals blanked out.
pub fn prose_only(text: &str) -> String {
    parts(text, Part::Prose)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Code,
    Prose,
}

fn parts(text: &str, wanted: Part) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut previous = ' ';
    while let Some(next) = rest.chars().next() {
        let opaque = opaque_len(rest, previous);
        let (len, part) = match opaque {
            0 => (next.len_utf8(), Part::Code),
            len => (len, Part::Prose),
        };
        let (piece, after) = rest.split_at(len);
        if part == wanted {
            out.push_str(piece);
        } else {
            blank(&mut out, piece);
        }
        previous = if part == Part::Code { next } else { ' ' };
        rest = after;
    }
    out
}

fn blank(out: &mut String, piece: &str) {
    out.extend(piece.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
}

/// The length of the comment or literal that `rest` begins with; 0 when it begins with code.
fn opaque_len(rest: &str, previous: char) -> usize {
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return block_comment_len(rest);
    }
    if !is_word(previous)
        && let Some(len) = raw_string_len(rest)
    {
        return len;
    }
    match rest.as_bytes() {
        [b'"', ..] => 1 + quoted_len(&rest[1..], '"'),
        [b'\'', b'\\', ..] => 1 + quoted_len(&rest[1..], '\''),
        // A character, if a quote follows it; else a lifetime.
        [b'\'', ..] => {
            let mut chars = rest[1..].chars();
            let len = chars.next().map_or(0, char::len_utf8);
            if chars.next() == Some('\'') {
                len + 2
            } else {
                0
            }
        }
        _ => 0,
    }
}

fn block_comment_len(rest: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        let tail = &rest.as_bytes()[at..];
        if tail.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if tail.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

fn raw_string_len(rest: &str) -> Option<usize> {
    let body = ["r", "br", "cr"]
        .iter()
        .find_map(|p| rest.strip_prefix(p))?;
    let hashes = body.len() - body.trim_start_matches('#').len();
    let inside = body[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let start = rest.len() - inside.len();
    Some(
        inside
            .find(&end)
            .map_or(rest.len(), |at| start + at + end.len()),
    )
}

/// Up to and with the closing `quote`.
fn quoted_len(inside: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in inside.char_indices() {
        if c == quote && !escaped {
            return at + 1;
        }
        escaped = c == '\\' && !escaped;
    }
    inside.len()
}

/// [`code_only`], with every item that only tests or the documentation have blanked out too.
pub fn product_code(text: &str) -> String {
    let mut code = code_only(text);
    for mark in [TEST_MARK, DOC_MARK] {
        while let Some(start) = code.find(mark) {
            let end = item_end(&code, start + mark.len());
            let mut blanked = String::with_capacity(end - start);
            blank(&mut blanked, &code[start..end]);
            code.replace_range(start..end, &blanked);
        }
    }
    code
}

/// A string literal.
#[derive(Debug, PartialEq, Eq)]
pub struct Literal<'a> {
    /// The line that it begins in, from 1.
    pub line: usize,
    /// As written between the quotes.
    pub text: &'a str,
}

/// The string literals of `text` outside of items under `#[cfg(test)]`.
pub fn product_literals(text: &str) -> Vec<Literal<'_>> {
    let tests = test_lines(text);
    let mut found = Vec::new();
    let (mut at, mut previous) = (0, ' ');
    while let Some(next) = text[at..].chars().next() {
        let len = opaque_len(&text[at..], previous);
        let piece = &text[at..at + len];
        if !piece.starts_with(['/', '\''])
            && let (Some(first), Some(last)) = (piece.find('"'), piece.rfind('"'))
            && first < last
        {
            let line = line_of(text, at);
            if !tests.iter().any(|test| test.contains(&line)) {
                let text = &piece[first + 1..last];
                found.push(Literal { line, text });
            }
        }
        previous = if len == 0 { next } else { ' ' };
        at += len.max(next.len_utf8());
    }
    found
}

/// The lines of each item under `#[cfg(test)]`.
fn test_lines(text: &str) -> Vec<RangeInclusive<usize>> {
    let code = code_only(text);
    let marks = code.match_indices(TEST_MARK);
    marks
        .map(|(start, mark)| {
            let end = item_end(&code, start + mark.len());
            line_of(&code, start)..=line_of(&code, end)
        })
        .collect()
}

/// The end of the item that begins at `start`: after its `;`, or after the brace that closes it.
fn item_end(code: &str, start: usize) -> usize {
    let (mut braces, mut others) = (0_usize, 0_usize);
    for (at, c) in code[start..].char_indices() {
        match c {
            '(' | '[' => others += 1,
            ')' | ']' => others = others.saturating_sub(1),
            '{' => braces += 1,
            '}' if braces <= 1 => return start + at + 1,
            '}' => braces -= 1,
            ';' if braces == 0 && others == 0 => return start + at + 1,
            _ => {}
        }
    }
    code.len()
}

/// Lines with code on them.
pub fn code_lines(code: &str) -> usize {
    code.lines().filter(|line| !line.trim().is_empty()).count()
}

#[derive(Debug, PartialEq, Eq)]
pub struct Function<'a> {
    pub name: &'a str,
    /// The line of `fn`, from 1.
    pub line: usize,
    /// Lines with code on them, signature and closing brace included.
    pub code_lines: usize,
}

/// The functions with a body in `code`, which is [`code_only`].
pub fn functions(code: &str) -> Vec<Function<'_>> {
    let mut functions = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        let name = &code[at + 3..];
        let name = &name[..word_len(name)];
        if name.is_empty() || code[..at].ends_with(is_word) {
            continue;
        }
        let body = &code[at..item_end(code, at)];
        if body.ends_with('}') {
            functions.push(Function {
                name,
                line: line_of(code, at),
                code_lines: code_lines(body),
            });
        }
    }
    functions
}

/// A path such as `crate::api::Client`, complete even if it is in the braces of a `use`.
#[derive(Debug, PartialEq, Eq)]
pub struct NamedPath {
    pub line: usize,
    pub path: String,
    /// What follows `as`.
    pub alias: Option<String>,
}

/// Every path of two or more segments in `code`, which is [`code_only`].
pub fn paths(code: &str) -> Vec<NamedPath> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < code.len() {
        if word_len(&code[at..]) == 0 {
            at += code[at..].chars().next().map_or(1, char::len_utf8);
        } else {
            at = read_path(code, at, "", &mut found);
        }
    }
    found
}

/// What the `use` statements in `code` bring into scope: names, and the paths that they stand for.
pub fn imports(code: &str) -> Vec<(String, String)> {
    let mut imports = Vec::new();
    for (at, _) in code.match_indices("use ") {
        if code[..at].ends_with(is_word) {
            continue;
        }
        for found in paths(&code[at + 4..item_end(code, at)]) {
            let path = found.path.strip_suffix("::self").unwrap_or(&found.path);
            let name = path.rsplit("::").next().unwrap_or_default();
            let name = found.alias.as_deref().unwrap_or(name);
            imports.push((name.to_owned(), path.to_owned()));
        }
    }
    imports
}

/// Reads the path at `at`, and those in its braces, and returns its end.
fn read_path(code: &str, at: usize, prefix: &str, found: &mut Vec<NamedPath>) -> usize {
    let start = at;
    let mut at = at;
    let mut path = prefix.to_owned();
    loop {
        let len = word_len(&code[at..]);
        path.push_str(&code[at..at + len]);
        at += len;
        let Some(next) = code[at..].trim_start().strip_prefix("::") else {
            break;
        };
        let next = next.trim_start();
        if let Some(group) = next.strip_prefix('{') {
            path.push_str("::");
            return read_group(code, code.len() - group.len(), &path, found);
        }
        if word_len(next) == 0 {
            // `use a::*`, `Vec::<u8>`.
            path.push_str("::");
            at = code.len() - next.len();
            break;
        }
        path.push_str("::");
        at = code.len() - next.len();
    }
    let alias = code[at..].trim_start().strip_prefix("as ");
    let alias = alias.map(|alias| &alias[..word_len(alias)]);
    if let Some(alias) = alias.filter(|_| !prefix.is_empty()) {
        // In braces it is no path that begins with `prefix`.
        at += code[at..].find(alias).unwrap_or(0) + alias.len();
    }
    if path.contains("::") {
        found.push(NamedPath {
            line: line_of(code, start),
            path,
            alias: alias.map(str::to_owned),
        });
    }
    at
}

fn read_group(code: &str, start: usize, prefix: &str, found: &mut Vec<NamedPath>) -> usize {
    let mut at = start;
    while let Some(next) = code[at..].chars().next() {
        if word_len(&code[at..]) > 0 {
            at = read_path(code, at, prefix, found);
        } else if next == '}' {
            return at + 1;
        } else {
            at += next.len_utf8();
        }
    }
    at
}

fn line_of(code: &str, at: usize) -> usize {
    code[..at].matches('\n').count() + 1
}

fn word_len(text: &str) -> usize {
    text.find(|c| !is_word(c)).unwrap_or(text.len())
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_strings_and_characters_are_not_code() {
        let table = [
            ("a // b\nc", "a     \nc"),
            ("a /* b /* c */ d */ e", "a                   e"),
            (r#"f("a\"b", x)"#, "f(      , x)"),
            ("r#\"a\"b\"# + c", "         + c"),
            ("for \"x\"", "for    "),
            ("('{', '\\'', b'x')", "(   ,     , b   )"),
            ("&'a str", "&'a str"),
        ];
        for (text, expected) in table {
            assert_eq!(code_only(text), expected, "{text}");
        }
    }

    #[test]
    fn comments_and_strings_are_prose() {
        let table = [
            ("a // b\nc", "  // b\n "),
            ("f(\"x\", r#\"y\"#)", "  \"x\"  r#\"y\"# "),
            ("&'a str", "       "),
        ];
        for (text, expected) in table {
            assert_eq!(prose_only(text), expected, "{text}");
        }
    }

    #[test]
    fn items_under_cfg_test_are_not_product_code() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n fn b() { {} }\n}\n#[cfg(test)]\nuse x;\nfn c() {}\n";
        let code = product_code(text);
        let names: Vec<_> = functions(&code).into_iter().map(|f| f.name).collect();
        assert_eq!(names, ["a", "c"]);
        assert_eq!(code_lines(&code), 2);
        assert_eq!(
            code.lines().count(),
            text.lines().count(),
            "lines stay where they are"
        );
    }

    #[test]
    fn a_function_is_counted_without_its_comments_and_blank_lines() {
        let text = "fn a();\nfn b(x: [u8; 2])\n{\n    // no\n\n    c();\n}\nlet f: fn (u8);\n";
        let expected = Function {
            name: "b",
            line: 2,
            code_lines: 4,
        };
        assert_eq!(functions(&code_only(text)), [expected]);
    }

    #[test]
    fn paths_are_spelt_out() {
        let table: [(&str, &[&str]); 6] = [
            (
                "use std::{fs, io::{self, Read}};",
                &["std::fs", "std::io::self", "std::io::Read"],
            ),
            ("use crate::api;", &["crate::api"]),
            ("use crate::{\n    api::A,\n};", &["crate::api::A"]),
            ("use kube::*;", &["kube::"]),
            (
                "let x = super::super::host::read(a);",
                &["super::super::host::read"],
            ),
            ("struct A { b: C }", &[]),
        ];
        for (text, expected) in table {
            let found = paths(text);
            let found: Vec<_> = found.iter().map(|found| found.path.as_str()).collect();
            assert_eq!(found, expected, "{text}");
        }
        assert_eq!(paths("\n\na::b").first().map(|found| found.line), Some(3));
    }

    #[test]
    fn imports_are_names_for_paths() {
        let text = "pub use a::{b as c, d::{self, E as _}};\nfn f() { g as u8; use h::I as J; }";
        let expected = [
            ("c", "a::b"),
            ("d", "a::d"),
            ("_", "a::d::E"),
            ("J", "h::I"),
        ];
        let expected = expected.map(|(name, path)| (name.to_owned(), path.to_owned()));
        assert_eq!(imports(text), expected);
    }
}
