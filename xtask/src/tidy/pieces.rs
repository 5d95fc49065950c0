//! The names and the texts of a Rust source.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::Source;

/// A name, or a text for people: a comment or a string literal.
pub struct Piece {
    pub line: usize,
    pub text: String,
    pub kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Name,
    Literal,
    Comment,
}

/// The pieces of a source in the order of their lines. Empty if it is not Rust, or does not parse, which the
/// compiler reports.
pub fn pieces(source: &Source) -> Vec<Piece> {
    let mut pieces = Vec::new();
    if source.is_rust() {
        let tokens: TokenStream = source.text.parse().unwrap_or_default();
        collect(tokens.into_iter(), &mut pieces);
        // A token stream has no comments but those of the documentation, which are attributes there.
        let comments = (1..).zip(source.text.lines()).filter_map(|(line, text)| {
            let text = text.trim_start().strip_prefix("//")?.to_owned();
            let kind = Kind::Comment;
            Some(Piece { line, text, kind })
        });
        pieces.extend(comments);
        pieces.sort_by_key(|piece| piece.line);
    }
    pieces
}

fn collect(tokens: impl Iterator<Item = TokenTree>, pieces: &mut Vec<Piece>) {
    for token in tokens {
        let line = token.span().start().line;
        let mut add = |text: String, kind| pieces.push(Piece { line, text, kind });
        match token {
            TokenTree::Ident(name) => add(name.to_string(), Kind::Name),
            TokenTree::Literal(literal) => {
                let text = literal.to_string();
                if let (Some(start), Some(end)) = (text.find('"'), text.rfind('"')) {
                    add(
                        text[start + 1..end.max(start + 1)].to_owned(),
                        Kind::Literal,
                    );
                }
            }
            TokenTree::Group(group) => {
                let mut inside = group.stream().into_iter().peekable();
                let is_doc = |first: &TokenTree| first.to_string() == "doc";
                // `[doc = "..."]`: its line is a comment.
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
        let found: Vec<_> = pieces(&source("a.rs", text))
            .into_iter()
            .filter(|piece| piece.kind != Kind::Name)
            .map(|piece| (piece.line, piece.text))
            .collect();
        let expected = [(1, "! Of a."), (3, " Of d."), (4, "f \"g\"")];
        let expected = expected.map(|(line, text)| (line, text.to_owned()));
        assert_eq!(found, expected);
        assert!(pieces(&source("a.md", text)).is_empty());
    }
}
