//! Replaces the names in a recording, so that it can be shown to strangers and still be replayed.
//!
//! Every text in the state and in the inputs is rewritten word by word; the effects are computed
//! again from that, so that nothing of the original text is left in them. What stays: numbers,
//! times, names of fields and variants, and the words by which the agent recognizes the form of a
//! cgroup's path. The same word always becomes the same other word, which cannot be guessed.

use std::collections::hash_map::RandomState;
use std::fmt::Display;
use std::hash::BuildHasher as _;

use anyhow::{Context as _, Result};
use nodepulse_core::checked_line;
use nodepulse_core::subjects::recording::{self, Header, Step};
use nodepulse_core::subjects::{Input, Subjects};
use serde::de::DeserializeOwned;
use serde::ser::{self, Serialize};
use serde_json::{Map, Value};

/// Words that are part of a form that the agent parses.
const KEPT: [&str; 17] = [
    "kubepods",
    "burstable",
    "besteffort",
    "guaranteed",
    "pod",
    "slice",
    "scope",
    "service",
    "cri",
    "crio",
    "containerd",
    "docker",
    "libpod",
    "system",
    "user",
    "init",
    "payload",
];

/// A hexadecimal word of this length or more is an identifier, and remains one.
const IDENTIFIER: usize = 8;

/// Returns the recording with other names. Only the lines before one that is cut off are kept.
/// Fails if the recording cannot be replayed.
pub fn anonymized(recorded: &str) -> Result<String> {
    let words = Words(RandomState::new());
    let mut lines = recorded.split_inclusive('\n');
    let mut inputs = Vec::new();
    let replayed = recording::replay(lines.clone(), |step| {
        inputs.push((step.now, step.input.clone()));
    });
    match replayed {
        Ok(_) | Err(recording::ReplayError::CutOff { .. }) => {}
        Err(err) => return Err(err.into()),
    }
    let first = lines.next().context("it is empty")?;
    let mut header: Header<Subjects> = serde_json::from_str(first)?;
    header.subjects = words.rewritten(&header.subjects).context("the state")?;
    let mut text = checked_line::line(&header)?;
    for (now, input) in inputs {
        let input: Input = words
            .rewritten(&input)
            .with_context(|| format!("{input:?}"))?;
        let effects = header.subjects.on(input.clone(), now);
        text += &checked_line::line(&Step {
            now,
            input,
            effects,
        })?;
    }
    Ok(text)
}

#[derive(Debug)]
struct Words(RandomState);

impl Words {
    fn rewritten<T: Serialize + DeserializeOwned>(&self, value: &T) -> Result<T> {
        let value = value.serialize(Rewriter(self))?.into_value();
        Ok(serde_json::from_value(value)?)
    }

    fn text(&self, text: &str) -> String {
        let is_word = |c: char| c.is_alphanumeric();
        let mut rewritten = String::new();
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let end = rest
                .find(|c| is_word(c) != is_word(first))
                .unwrap_or(rest.len());
            let (part, after) = rest.split_at(end);
            if is_word(first) {
                rewritten += &self.word(part);
            } else {
                rewritten += part;
            }
            rest = after;
        }
        rewritten
    }

    fn word(&self, word: &str) -> String {
        let is_identifier = |word: &str| {
            word.len() >= IDENTIFIER && word.bytes().all(|byte| byte.is_ascii_hexdigit())
        };
        if KEPT.contains(&word) || word.bytes().all(|byte| byte.is_ascii_digit()) {
            word.to_owned()
        } else if is_identifier(word) {
            self.letters(word, word.len(), b"0123456789abcdef")
        } else if let Some(rest) = word.strip_prefix("pod").filter(|rest| is_identifier(rest)) {
            format!("pod{}", self.letters(rest, rest.len(), b"0123456789abcdef"))
        } else {
            self.letters(word, word.len().min(12), b"bcdfghjklmnpqrstvwxz")
        }
    }

    /// Returns a word of `length` letters that follows from `word`.
    fn letters(&self, word: &str, length: usize, alphabet: &[u8]) -> String {
        let letter = |place: usize| {
            let hash = self.0.hash_one((word, place)) % alphabet.len() as u64;
            let letter = usize::try_from(hash)
                .ok()
                .and_then(|hash| alphabet.get(hash));
            char::from(letter.copied().unwrap_or(b'x'))
        };
        (0..length).map(letter).collect()
    }

    /// Rewrites bytes that are text, padded with zeros to their length; others stay.
    fn bytes(&self, bytes: &[u8]) -> Vec<u8> {
        let length = bytes
            .iter()
            .position(|byte| *byte == 0)
            .unwrap_or(bytes.len());
        let text = String::from_utf8_lossy(bytes.get(..length).unwrap_or(bytes));
        if !text.contains(char::is_alphabetic) {
            return bytes.to_vec();
        }
        let mut rewritten = self.text(&text).into_bytes();
        rewritten.resize(bytes.len(), 0);
        rewritten
    }
}

/// A part of a value. A list of bytes may be text.
enum Part {
    Byte(u8),
    Other(Value),
}

impl Part {
    fn into_value(self) -> Value {
        match self {
            Self::Byte(byte) => byte.into(),
            Self::Other(value) => value,
        }
    }
}

/// Converts to JSON, as `serde_json` does.
#[derive(Clone, Copy)]
struct Rewriter<'a>(&'a Words);

type Converted = Result<Part, serde_json::Error>;

#[expect(
    clippy::unnecessary_wraps,
    reason = "the result of each method of a serializer"
)]
fn other(value: impl Into<Value>) -> Converted {
    Ok(Part::Other(value.into()))
}

/// The elements of a list, or the members of an object, perhaps of a variant.
struct Elements<'a> {
    words: &'a Words,
    variant: Option<&'static str>,
    list: Vec<Part>,
    map: Map<String, Value>,
    key: String,
}

impl Elements<'_> {
    fn of_variant(&self, value: Value) -> Converted {
        match self.variant {
            Some(variant) => other(Map::from_iter([(variant.to_owned(), value)])),
            None => other(value),
        }
    }

    fn push<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), serde_json::Error> {
        self.list.push(value.serialize(Rewriter(self.words))?);
        Ok(())
    }

    fn insert<T: Serialize + ?Sized>(
        &mut self,
        key: &str,
        value: &T,
    ) -> Result<(), serde_json::Error> {
        let value = value.serialize(Rewriter(self.words))?.into_value();
        self.map.insert(key.to_owned(), value);
        Ok(())
    }

    fn list(mut self) -> Converted {
        let bytes = self.list.iter().map(|part| match part {
            Part::Byte(byte) => Some(*byte),
            Part::Other(_) => None,
        });
        let list: Vec<Value> = match bytes.collect::<Option<Vec<u8>>>() {
            Some(bytes) => self
                .words
                .bytes(&bytes)
                .into_iter()
                .map(Value::from)
                .collect(),
            None => std::mem::take(&mut self.list)
                .into_iter()
                .map(Part::into_value)
                .collect(),
        };
        self.of_variant(list.into())
    }

    fn object(mut self) -> Converted {
        let map = std::mem::take(&mut self.map);
        self.of_variant(map.into())
    }
}

macro_rules! plain {
    ($($method:ident: $type:ty),*) => {
        $(fn $method(self, value: $type) -> Converted { other(value) })*
    };
}

impl<'a> ser::Serializer for Rewriter<'a> {
    type Ok = Part;
    type Error = serde_json::Error;
    type SerializeSeq = Elements<'a>;
    type SerializeTuple = Elements<'a>;
    type SerializeTupleStruct = Elements<'a>;
    type SerializeTupleVariant = Elements<'a>;
    type SerializeMap = Elements<'a>;
    type SerializeStruct = Elements<'a>;
    type SerializeStructVariant = Elements<'a>;

    plain!(serialize_bool: bool, serialize_i8: i8, serialize_i16: i16, serialize_i32: i32,
        serialize_i64: i64, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64,
        serialize_f32: f32, serialize_f64: f64);

    fn serialize_u8(self, value: u8) -> Converted {
        Ok(Part::Byte(value))
    }

    fn serialize_i128(self, value: i128) -> Converted {
        // Amounts of resources, which fit.
        let value = i64::try_from(value).map_err(ser::Error::custom)?;
        other(value)
    }

    fn serialize_char(self, value: char) -> Converted {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, value: &str) -> Converted {
        other(self.0.text(value))
    }

    fn serialize_bytes(self, value: &[u8]) -> Converted {
        other(self.0.bytes(value))
    }

    fn serialize_none(self) -> Converted {
        other(Value::Null)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Converted {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Converted {
        other(Value::Null)
    }

    fn serialize_unit_struct(self, _: &'static str) -> Converted {
        other(Value::Null)
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Converted {
        other(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Converted {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Converted {
        let value = value.serialize(self)?.into_value();
        self.elements(Some(variant)).of_variant(value)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Elements<'a>, serde_json::Error> {
        Ok(self.elements(None))
    }

    fn serialize_tuple(self, _: usize) -> Result<Elements<'a>, serde_json::Error> {
        Ok(self.elements(None))
    }

    fn serialize_tuple_struct(
        self,
        _: &'static str,
        _: usize,
    ) -> Result<Elements<'a>, serde_json::Error> {
        Ok(self.elements(None))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Elements<'a>, serde_json::Error> {
        Ok(self.elements(Some(variant)))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Elements<'a>, serde_json::Error> {
        Ok(self.elements(None))
    }

    fn serialize_struct(
        self,
        _: &'static str,
        _: usize,
    ) -> Result<Elements<'a>, serde_json::Error> {
        Ok(self.elements(None))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Elements<'a>, serde_json::Error> {
        Ok(self.elements(Some(variant)))
    }

    fn collect_str<T: Display + ?Sized>(self, value: &T) -> Converted {
        self.serialize_str(&value.to_string())
    }
}

impl<'a> Rewriter<'a> {
    fn elements(self, variant: Option<&'static str>) -> Elements<'a> {
        Elements {
            words: self.0,
            variant,
            list: Vec::new(),
            map: Map::new(),
            key: String::new(),
        }
    }
}

/// Implements a trait of lists, or of objects, whose method has a `key`.
macro_rules! compound {
    ($($trait:ident: $method:ident($($key:ident)?) $add:ident $end:ident),*) => {
        $(impl ser::$trait for Elements<'_> {
            type Ok = Part;
            type Error = serde_json::Error;

            fn $method<T: Serialize + ?Sized>(
                &mut self,
                $($key: &'static str,)?
                value: &T,
            ) -> Result<(), serde_json::Error> {
                self.$add($($key,)? value)
            }

            fn end(self) -> Converted {
                self.$end()
            }
        })*
    };
}

compound!(
    SerializeSeq: serialize_element() push list,
    SerializeTuple: serialize_element() push list,
    SerializeTupleStruct: serialize_field() push list,
    SerializeTupleVariant: serialize_field() push list,
    SerializeStruct: serialize_field(key) insert object,
    SerializeStructVariant: serialize_field(key) insert object
);

impl ser::SerializeMap for Elements<'_> {
    type Ok = Part;
    type Error = serde_json::Error;

    /// A key is text, a number, or a variant.
    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), serde_json::Error> {
        let key = key.serialize(Rewriter(self.words))?.into_value();
        self.key = key.as_str().map_or_else(|| key.to_string(), str::to_owned);
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(
        &mut self,
        value: &T,
    ) -> Result<(), serde_json::Error> {
        let key = std::mem::take(&mut self.key);
        self.insert(&key, value)
    }

    fn end(self) -> Converted {
        self.object()
    }
}
