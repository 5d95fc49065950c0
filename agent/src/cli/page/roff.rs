//! A page in the language of man(7).

use super::{Block, Page, source};

pub(super) fn render(page: &Page) -> String {
    let title = page.name.to_uppercase();
    let mut out = format!(
        ".TH \"{}\" \"{}\" \"\" \"{}\" \"nodepulse manual\"\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n",
        escape(&title),
        page.section,
        escape(&source()),
        escape(&page.name),
        inline(&page.about)
    );
    for (n, call) in page.synopsis.iter().enumerate() {
        if n > 0 {
            out.push_str(".br\n");
        }
        let (command, arguments) = (escape(&call.command), escape(&call.arguments));
        line(&mut out, &format!("\\fB{command}\\fR {arguments}"));
    }
    for section in &page.sections {
        request(&mut out, "SH", &section.heading.to_uppercase());
        for (n, block) in section.blocks.iter().enumerate() {
            match block {
                Block::Heading(heading) => request(&mut out, "SS", heading),
                Block::Text(text) => {
                    if n > 0 {
                        out.push_str(".PP\n");
                    }
                    line(&mut out, &inline(text));
                }
                Block::Entry { term, value, text } => {
                    out.push_str(".TP\n");
                    let term = format!("\\fB{}\\fR\\fI{}\\fR", escape(term), escape(value));
                    line(&mut out, &term);
                    line(&mut out, &inline(text));
                }
            }
        }
    }
    out
}

fn request(out: &mut String, name: &str, heading: &str) {
    out.extend([".", name, " \"", escape(heading).as_str(), "\"\n"]);
}

/// Writes a line of text. One that begins with a dot or an apostrophe would be a request.
fn line(out: &mut String, text: &str) {
    if text.starts_with(['.', '\'']) {
        out.push_str("\\&");
    }
    out.push_str(text);
    out.push('\n');
}

/// Formats words between backticks in bold.
fn inline(text: &str) -> String {
    let mut out = String::new();
    for (n, part) in text.split('`').enumerate() {
        if n % 2 == 1 {
            out.extend(["\\fB", escape(part).as_str(), "\\fR"]);
        } else {
            out.push_str(&escape(part));
        }
    }
    out
}

fn escape(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\e"),
            '-' => out.push_str("\\-"),
            '\'' => out.push_str("\\(aq"),
            '"' => out.push_str("\\(dq"),
            '^' => out.push_str("\\(ha"),
            '~' => out.push_str("\\(ti"),
            c if c.is_ascii() => out.push(c),
            c => out.extend([format!("\\[u{:04X}]", u32::from(c))]),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_no_request_and_no_escape() {
        let mut out = String::new();
        line(&mut out, &inline(".TH 'a' \\n …"));
        assert_eq!(out, "\\&.TH \\(aqa\\(aq \\en \\[u2026]\n");
        assert_eq!(inline("a `--b` c"), "a \\fB\\-\\-b\\fR c");
    }
}
