//! Splits a Rust source into names, string literals and comments.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::Source;

/// The line, the kind and the text.
pub type Piece = (usize, Kind, String);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Name,
    Literal,
    Comment,
}

/// Returns the pieces of a source by line. Empty if it is not Rust or does not parse, which the
/// compiler reports.
pub fn pieces(source: &Source) -> Vec<Piece> {
    let mut pieces = Vec::new();
    if source.is_rust() {
        let tokens: TokenStream = source.text.parse().unwrap_or_default();
        collect(tokens.into_iter(), &mut pieces);
        // A token stream only contains doc comments, as attributes.
        let comments = (1..).zip(source.text.lines()).filter_map(|(line, text)| {
            let text = text.trim_start().strip_prefix("//")?;
            Some((line, Kind::Comment, text.to_owned()))
        });
        pieces.extend(comments);
        pieces.sort_by_key(|(line, ..)| *line);
    }
    pieces
}

fn collect(tokens: impl Iterator<Item = TokenTree>, pieces: &mut Vec<Piece>) {
    for token in tokens {
        let line = token.span().start().line;
        let mut add = |kind, text: &str| pieces.push((line, kind, text.to_owned()));
        match token {
            TokenTree::Ident(name) => add(Kind::Name, &name.to_string()),
            TokenTree::Literal(literal) => {
                let text = literal.to_string();
                let text = text
                    .split_once('"')
                    .and_then(|(_, text)| text.rsplit_once('"'));
                if let Some((text, _)) = text {
                    add(Kind::Literal, text);
                }
            }
            TokenTree::Group(group) => {
                let mut inside = group.stream().into_iter().peekable();
                let is_doc = |first: &TokenTree| first.to_string() == "doc";
                // `[doc = "..."]` is a comment, whose line is read above.
                if group.delimiter() != Delimiter::Bracket || !inside.peek().is_some_and(is_doc) {
                    collect(inside, pieces);
                }
            }
            TokenTree::Punct(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::source;

    #[test]
    fn names_texts_and_comments_have_their_lines() {
        let text =
            "//! Of a.\nfn b(c: &'static str) {\n    // Of d.\n    e!(r#\"f \"g\"\"#, 'h', 1)\n}\n";
        let mut found = pieces(&source("a.rs", text));
        found.retain(|(_, kind, _)| *kind != Kind::Name);
        let expected = [
            (1, Kind::Comment, "! Of a.".to_owned()),
            (3, Kind::Comment, " Of d.".to_owned()),
            (4, Kind::Literal, "f \"g\"".to_owned()),
        ];
        assert_eq!(found, expected);
        assert!(pieces(&source("a.md", text)).is_empty());
    }
}
