//! Member offsets, enum values and tracepoint prototypes from the running kernel's BTF.
//!
//! Needed because neither aya nor bpf-linker relocates the programs at load time. The parser keeps
//! the raw bytes and one position per type, finds the wanted names in one pass, and is dropped once
//! the offsets are known.
//!
//! Format: <https://github.com/torvalds/linux/blob/v6.12/Documentation/bpf/btf.rst>

use std::collections::HashMap;

const MAGIC: u16 = 0xeb9f;

const KIND_PTR: u32 = 2;
const KIND_ARRAY: u32 = 3;
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
const KIND_ENUM: u32 = 6;
const KIND_TYPEDEF: u32 = 8;
const KIND_VOLATILE: u32 = 9;
const KIND_CONST: u32 = 10;
const KIND_RESTRICT: u32 = 11;
const KIND_FUNC_PROTO: u32 = 13;
const KIND_TYPE_TAG: u32 = 18;
const KIND_ENUM64: u32 = 19;

/// Limit on nested typedefs, qualifiers or anonymous members. The kernel's types need five.
const MAX_NESTING: u32 = 16;

/// Limit on the members visited for one path. The longest struct, `task_struct`, has about 270 with
/// those of anonymous members. Bounds a file in which a struct contains itself many times.
const MAX_MEMBERS: u32 = 1 << 16;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("not a BTF file: {0}")]
pub struct BtfError(&'static str);

pub struct Btf {
    data: Vec<u8>,
    strings: usize,
    /// Position of each type in `data`, by type id. Id 0 is `void` and has no position.
    types: Vec<usize>,
    /// Ids of the wanted structs, unions, enums and typedefs.
    names: HashMap<String, Vec<u32>>,
}

#[derive(Clone, Copy)]
struct BtfType {
    at: usize,
    name: u32,
    kind: u32,
    members: u32,
    /// If set, the upper 8 bits of a member's offset are its bit-field size.
    bit_fields: bool,
    /// A size or the id of another type, depending on the kind.
    payload: u32,
}

impl BtfType {
    fn of_kind(self, kind: u32) -> Option<Self> {
        (self.kind == kind).then_some(self)
    }

    /// Returns the position of entry `n` after the three words that every type has.
    fn entry(self, n: u32, size: u32) -> Option<usize> {
        let offset = index(n.checked_mul(size)?)?;
        self.at.checked_add(12)?.checked_add(offset)
    }
}

#[derive(Clone, Copy)]
struct BtfMember {
    bits: u32,
    type_: u32,
}

impl Btf {
    /// Parses `data`, and indexes the types named in `wanted`.
    ///
    /// # Cost
    ///
    /// One pass over about 150,000 types; 8 bytes per type until this is dropped.
    pub fn parse(data: Vec<u8>, wanted: &[&str]) -> Result<Self, BtfError> {
        let magic = data
            .get(..2)
            .and_then(|b| b.try_into().ok())
            .map(u16::from_le_bytes);
        if magic != Some(MAGIC) {
            return Err(BtfError("wrong magic number"));
        }
        let short = || BtfError("truncated");
        let header = u32_at(&data, 4).ok_or_else(short)?;
        let field = |at| {
            u32_at(&data, at)
                .and_then(|n| index(header.checked_add(n)?))
                .ok_or_else(short)
        };
        let length = |at| u32_at(&data, at).and_then(index).ok_or_else(short);
        let (start, strings) = (field(8)?, field(16)?);
        let end = start.checked_add(length(12)?).ok_or_else(short)?;
        if data.len() < end || data.len() < strings {
            return Err(short());
        }
        let mut btf = Self {
            data,
            strings,
            types: vec![0],
            names: HashMap::new(),
        };
        btf.index(start, end, wanted).ok_or_else(short)?;
        Ok(btf)
    }

    fn index(&mut self, start: usize, end: usize, wanted: &[&str]) -> Option<()> {
        let mut at = start;
        while at < end {
            let type_ = self.type_at(at)?;
            let id = u32::try_from(self.types.len()).ok()?;
            self.types.push(at);
            at = at
                .checked_add(12)?
                .checked_add(index(trailing(type_.kind, type_.members)?)?)?;
            let named = matches!(
                type_.kind,
                KIND_STRUCT | KIND_UNION | KIND_ENUM | KIND_ENUM64 | KIND_TYPEDEF
            );
            if !named || type_.name == 0 {
                continue;
            }
            let name = self.string(type_.name)?;
            if let Some(name) = wanted.iter().find(|w| w.as_bytes() == name) {
                self.names.entry((*name).to_owned()).or_default().push(id);
            }
        }
        Some(())
    }

    /// Returns the offset in bytes of `path`, such as `pid.numbers[0].ns`: a struct, then members,
    /// also of anonymous ones. `None` if there is no such member, or if it is not byte-aligned.
    pub fn offset(&self, path: &str) -> Option<u32> {
        let (bits, _) = self.resolve(path)?;
        (bits % 8 == 0).then_some(bits / 8)
    }

    pub fn is_array(&self, path: &str) -> bool {
        self.resolve(path)
            .and_then(|(_, id)| self.plain_type(id))
            .is_some_and(|t| t.kind == KIND_ARRAY)
    }

    pub fn size(&self, name: &str) -> Option<u32> {
        self.find(name, KIND_STRUCT).map(|t| t.payload)
    }

    pub fn enum_value(&self, enum_: &str, name: &str) -> Option<u32> {
        let type_ = self.find(enum_, KIND_ENUM)?;
        (0..type_.members).find_map(|n| {
            let at = type_.entry(n, 8)?;
            let found = self.string(u32_at(&self.data, at)?)? == name.as_bytes();
            found.then(|| u32_at(&self.data, at.checked_add(4)?))?
        })
    }

    /// Returns the name of the struct to which argument `n` of tracepoint `name` points. The
    /// prototype is the typedef `btf_trace_<name>`, whose first parameter is internal.
    pub fn tracepoint_argument(&self, name: &str, n: u32) -> Option<String> {
        let alias = self.find(&format!("btf_trace_{name}"), KIND_TYPEDEF)?;
        let pointer = self.type_(alias.payload)?.of_kind(KIND_PTR)?;
        let proto = self.type_(pointer.payload)?.of_kind(KIND_FUNC_PROTO)?;
        let parameter = n.checked_add(1).filter(|p| *p < proto.members)?;
        let at = proto.entry(parameter, 8)?;
        let argument = self.plain_type(u32_at(&self.data, at.checked_add(4)?)?)?;
        let target = argument.of_kind(KIND_PTR)?.payload;
        let target = self.plain_type(target)?.of_kind(KIND_STRUCT)?;
        String::from_utf8(self.string(target.name)?.to_vec()).ok()
    }

    fn resolve(&self, path: &str) -> Option<(u32, u32)> {
        let mut parts = path.split('.');
        let start = self.find(parts.next()?, KIND_STRUCT)?;
        let mut here = BtfMember {
            bits: 0,
            type_: self.id_of(start)?,
        };
        let mut left = MAX_MEMBERS;
        for part in parts {
            let (name, element) = match part.split_once('[') {
                Some((name, rest)) => (name, Some(rest.strip_suffix(']')?.parse::<u32>().ok()?)),
                None => (part, None),
            };
            let found = self.member(self.plain(here.type_)?, name, MAX_NESTING, &mut left)?;
            here = BtfMember {
                bits: here.bits.checked_add(found.bits)?,
                type_: found.type_,
            };
            if let Some(n) = element {
                let array = self.plain_type(here.type_)?.of_kind(KIND_ARRAY)?;
                let element = u32_at(&self.data, array.at.checked_add(12)?)?;
                let skip = self.size_of(element)?.checked_mul(n)?.checked_mul(8)?;
                here = BtfMember {
                    bits: here.bits.checked_add(skip)?,
                    type_: element,
                };
            }
        }
        Some((here.bits, here.type_))
    }

    fn member(&self, of: u32, name: &str, nesting: u32, left: &mut u32) -> Option<BtfMember> {
        let type_ = self.type_(of)?;
        if !matches!(type_.kind, KIND_STRUCT | KIND_UNION) {
            return None;
        }
        (0..type_.members).find_map(|n| {
            *left = left.checked_sub(1)?;
            let at = type_.entry(n, 12)?;
            let raw = u32_at(&self.data, at.checked_add(8)?)?;
            let bits = if type_.bit_fields {
                raw & 0x00ff_ffff
            } else {
                raw
            };
            let here = BtfMember {
                bits,
                type_: u32_at(&self.data, at.checked_add(4)?)?,
            };
            match u32_at(&self.data, at)? {
                0 => {
                    let inner = self.plain(here.type_)?;
                    let inner = self.member(inner, name, nesting.checked_sub(1)?, left)?;
                    Some(BtfMember {
                        bits: bits.checked_add(inner.bits)?,
                        type_: inner.type_,
                    })
                }
                text => (self.string(text)? == name.as_bytes()).then_some(here),
            }
        })
    }

    fn size_of(&self, id: u32) -> Option<u32> {
        let type_ = self.plain_type(id)?;
        match type_.kind {
            KIND_PTR => Some(8),
            KIND_STRUCT | KIND_UNION | KIND_ENUM | KIND_ENUM64 | 1 => Some(type_.payload),
            _ => None,
        }
    }

    /// Returns `id` without typedefs and qualifiers.
    fn plain(&self, mut id: u32) -> Option<u32> {
        for _ in 0..MAX_NESTING {
            let type_ = self.type_(id)?;
            match type_.kind {
                KIND_TYPEDEF | KIND_VOLATILE | KIND_CONST | KIND_RESTRICT | KIND_TYPE_TAG => {
                    id = type_.payload;
                }
                _ => return Some(id),
            }
        }
        None
    }

    fn plain_type(&self, id: u32) -> Option<BtfType> {
        self.type_(self.plain(id)?)
    }

    /// Returns the type called `name`. If there are several, returns the first with members.
    fn find(&self, name: &str, kind: u32) -> Option<BtfType> {
        let of_kind = || {
            let ids = self.names.get(name).into_iter().flatten();
            ids.filter_map(|id| self.type_(*id))
                .filter(|t| t.kind == kind)
        };
        of_kind()
            .find(|t| t.members > 0)
            .or_else(|| of_kind().next())
    }

    fn id_of(&self, type_: BtfType) -> Option<u32> {
        self.types
            .binary_search(&type_.at)
            .ok()
            .and_then(|n| u32::try_from(n).ok())
    }

    fn type_(&self, id: u32) -> Option<BtfType> {
        let at = *self.types.get(index(id)?)?;
        (id != 0).then(|| self.type_at(at))?
    }

    fn type_at(&self, at: usize) -> Option<BtfType> {
        let info = u32_at(&self.data, at.checked_add(4)?)?;
        Some(BtfType {
            at,
            name: u32_at(&self.data, at)?,
            kind: info >> 24 & 0x1f,
            members: info & 0xffff,
            bit_fields: info >> 31 == 1,
            payload: u32_at(&self.data, at.checked_add(8)?)?,
        })
    }

    fn string(&self, at: u32) -> Option<&[u8]> {
        let text = self.data.get(self.strings.checked_add(index(at)?)?..)?;
        text.split(|b| *b == 0).next()
    }
}

/// Returns the number of bytes after the three words of every type; `None` for an unknown kind.
fn trailing(kind: u32, members: u32) -> Option<u32> {
    match kind {
        // int, var, decl_tag
        1 | 14 | 17 => Some(4),
        KIND_ARRAY => Some(12),
        // struct, union, datasec, enum64
        KIND_STRUCT | KIND_UNION | 15 | KIND_ENUM64 => members.checked_mul(12),
        KIND_ENUM | KIND_FUNC_PROTO => members.checked_mul(8),
        // ptr, fwd, typedef, qualifiers, func, float, type_tag
        KIND_PTR | 7..=12 | 16 | KIND_TYPE_TAG => Some(0),
        _ => None,
    }
}

fn u32_at(data: &[u8], at: usize) -> Option<u32> {
    let bytes = data.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

fn index(n: u32) -> Option<usize> {
    usize::try_from(n).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small BTF file:
    /// `struct outer { int a; union { struct inner i; struct { int x; int late; }; }; struct inner
    /// n[3]; }`, `struct inner { u8 pad[4]; int x; }`, `enum colour { RED = 3, BLUE = 9 }` and
    /// `typedef void (*btf_trace_paint)(void *, struct outer *)`.
    fn sample() -> Vec<u8> {
        let mut strings = vec![0_u8];
        let mut text = |s: &str| {
            let at = u32::try_from(strings.len()).unwrap();
            strings.extend_from_slice(s.as_bytes());
            strings.push(0);
            at
        };
        let (int, outer, inner, a, i, n, x) = (
            text("int"),
            text("outer"),
            text("inner"),
            text("a"),
            text("i"),
            text("n"),
            text("x"),
        );
        let (colour, red, blue) = (text("colour"), text("RED"), text("BLUE"));
        let paint = text("btf_trace_paint");
        let late = text("late");
        let info = |kind: u32, members: u32| kind << 24 | members;
        #[rustfmt::skip]
        let words: Vec<u32> = vec![
            int, info(1, 0), 4, 32,                                      // 1 int
            inner, info(4, 1), 8, x, 1, 32,                              // 2 struct inner
            0, info(3, 0), 0, 2, 1, 3,                                   // 3 inner[3]
            0, info(5, 2), 8, i, 2, 0, 0, 12, 0,                         // 4 anonymous union
            outer, info(4, 3), 36, a, 1, 0, 0, 4, 32, n, 3, 96,          // 5 struct outer
            colour, info(6, 2), 4, red, 3, blue, 9,                      // 6 enum
            0, info(2, 0), 5,                                            // 7 struct outer *
            0, info(2, 0), 0,                                            // 8 void *
            0, info(13, 2), 0, 0, 8, 0, 7,                               // 9 prototype
            0, info(2, 0), 9,                                            // 10 pointer to it
            paint, info(8, 0), 10,                                       // 11 typedef
            0, info(4, 2), 8, x, 1, 0, late, 1, 32,                      // 12 anonymous struct
        ];
        file(&words, &strings)
    }

    fn file(words: &[u32], strings: &[u8]) -> Vec<u8> {
        let types: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let mut file = vec![0x9f, 0xeb, 1, 0];
        for n in [24, 0, types.len(), types.len(), strings.len()] {
            file.extend_from_slice(&u32::try_from(n).unwrap().to_le_bytes());
        }
        file.extend_from_slice(&types);
        file.extend_from_slice(strings);
        file
    }

    const NAMES: &[&str] = &["outer", "inner", "colour", "btf_trace_paint"];

    #[test]
    fn paths_resolve_through_arrays_and_anonymous_members() {
        let btf = Btf::parse(sample(), NAMES).unwrap();
        let rows = [
            ("outer.a", Some(0), "first member"),
            ("outer.i", Some(4), "through an anonymous union"),
            ("outer.i.x", Some(8), "and a struct"),
            ("outer.late", Some(8), "in an anonymous struct of the union"),
            ("outer.n", Some(12), "an array itself"),
            ("outer.n[2].x", Some(32), "an element of it"),
            ("outer.missing", None, "no such member"),
            ("outer.a.x", None, "an int has no members"),
            ("missing.a", None, "no such struct"),
        ];
        for (path, expected, why) in rows {
            assert_eq!(btf.offset(path), expected, "{path}: {why}");
        }
        assert!(btf.is_array("outer.n"));
        assert!(!btf.is_array("outer.a"));
        assert_eq!(btf.size("inner"), Some(8));
    }

    #[test]
    fn enums_and_tracepoint_prototypes_are_found() {
        let btf = Btf::parse(sample(), NAMES).unwrap();
        assert_eq!(btf.enum_value("colour", "BLUE"), Some(9));
        assert_eq!(btf.enum_value("colour", "GREEN"), None);
        assert_eq!(
            btf.tracepoint_argument("paint", 0).as_deref(),
            Some("outer")
        );
        assert_eq!(
            btf.tracepoint_argument("paint", 1),
            None,
            "it has one argument"
        );
    }

    #[test]
    fn a_struct_that_contains_itself_is_bounded() {
        const MEMBERS: u32 = 64;
        let mut words = vec![1, 4 << 24 | MEMBERS, 8];
        words.extend([0, 1, 0].repeat(64));
        let btf = Btf::parse(file(&words, b"\0outer\0"), NAMES).unwrap();
        assert_eq!(btf.offset("outer.a"), None);
    }

    #[test]
    fn a_truncated_file_never_panics() {
        let whole = sample();
        for length in 0..whole.len() {
            if let Ok(btf) = Btf::parse(whole[..length].to_vec(), NAMES) {
                // The file is truncated within the strings, so later names are not found.
                assert_eq!(btf.tracepoint_argument("paint", 9), None);
            }
        }
        assert!(Btf::parse(b"ELF?".to_vec(), NAMES).is_err());
    }
}
