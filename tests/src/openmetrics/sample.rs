//! Parses a line with a value.

use std::collections::BTreeMap;

#[derive(Debug, Clone, PartialEq)]
pub struct MetricSample {
    /// Name with its suffix.
    pub name: String,
    /// Unescaped values by name.
    pub labels: BTreeMap<String, String>,
    pub value: f64,
}

impl MetricSample {
    pub(super) fn parse(line: &str) -> Result<Self, String> {
        let end = line.find(['{', ' ']).ok_or("no value")?;
        let (name, rest) = line.split_at(end);
        check_name(name)?;
        let mut labels = BTreeMap::new();
        let mut rest = rest;
        if let Some(inside) = rest.strip_prefix('{') {
            rest = read_labels(inside, &mut labels)?;
        }
        let value = rest.strip_prefix(' ').ok_or("no space before the value")?;
        Ok(Self {
            name: name.to_owned(),
            labels,
            value: number(value)?,
        })
    }

    #[must_use]
    pub fn has(&self, wanted: &[(&str, &str)]) -> bool {
        let is = |(key, value): &(&str, &str)| self.labels.get(*key).is_some_and(|v| v == value);
        wanted.iter().all(is)
    }
}

/// Parses labels up to the closing brace; returns the rest.
fn read_labels<'a>(
    mut rest: &'a str,
    labels: &mut BTreeMap<String, String>,
) -> Result<&'a str, String> {
    if let Some(behind) = rest.strip_prefix('}') {
        return Ok(behind);
    }
    loop {
        let (key, behind) = rest.split_once("=\"").ok_or("a label without a value")?;
        check_name(key)?;
        if key.contains(':') {
            return Err("a colon in the name of a label".to_owned());
        }
        let (value, behind) = read_value(behind)?;
        if labels.insert(key.to_owned(), value).is_some() {
            return Err(format!("the label {key} twice"));
        }
        if let Some(behind) = behind.strip_prefix('}') {
            return Ok(behind);
        }
        rest = behind.strip_prefix(',').ok_or("no comma between labels")?;
    }
}

/// Parses up to the closing quote; returns the rest.
fn read_value(text: &str) -> Result<(String, &str), String> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Ok((value, text.get(at + 1..).unwrap_or_default())),
            '\\' => value.push(match chars.next() {
                Some((_, '\\')) => '\\',
                Some((_, '"')) => '"',
                Some((_, 'n')) => '\n',
                _ => return Err("an unknown escape".to_owned()),
            }),
            c => value.push(c),
        }
    }
    Err("a value without an end".to_owned())
}

pub(super) fn check_name(name: &str) -> Result<(), String> {
    let first = |c: char| c.is_ascii_alphabetic() || c == '_' || c == ':';
    let good = name.starts_with(first) && name.chars().all(|c| first(c) || c.is_ascii_digit());
    if good {
        Ok(())
    } else {
        Err(format!("{name:?} is no name"))
    }
}

/// Parses a number of the format.
pub(super) fn number(text: &str) -> Result<f64, String> {
    match text {
        "+Inf" => Ok(f64::INFINITY),
        "-Inf" => Ok(f64::NEG_INFINITY),
        "NaN" => Ok(f64::NAN),
        _ if text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c)) => {
            text.parse().map_err(|_| format!("{text:?} is no number"))
        }
        _ => Err(format!("{text:?} is no number")),
    }
}
