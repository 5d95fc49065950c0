//! Checks that every value that a recording can contain survives JSON: values of all types below
//! `Subjects`, `Input` and `Effect` are made up, without a list of types that could miss one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::de::value::{Error, StrDeserializer};
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error as _, Expected,
    IntoDeserializer, MapAccess, SeqAccess, VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use super::*;

/// The number of values of each type.
const VALUES: u64 = 100_000;

/// Makes up the value of any type. The first values of an enum have each of its variants once, and
/// the later ones any: turns of two enums could keep in step for ever.
#[derive(Debug, Default)]
pub(super) struct MadeUp {
    state: u64,
    /// The number of variants of each enum, and of its values so far.
    enums: BTreeMap<&'static str, (usize, usize)>,
    /// In a time, integers have two bits less: seconds and nanoseconds must not overflow.
    shift: u32,
}

impl MadeUp {
    /// Computes the next number of `SplitMix64`.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, count: u64) -> u64 {
        self.next() % count
    }

    /// Returns an extreme, a number that no float can represent, or any other.
    fn integer(&mut self, max: u64) -> u64 {
        let max = max >> self.shift;
        match self.below(5) {
            0 => 0,
            1 => max,
            2 => max / 2 + 1,
            3 => self.below(1_000_000_000).min(max),
            _ => self.next() & max,
        }
    }

    fn signed(&mut self, max: i64) -> i64 {
        match self.below(5) {
            0 => 0,
            1 => max,
            2 => -max - 1,
            3 => -1,
            _ => self.next().cast_signed() & max,
        }
    }

    fn text(&mut self) -> String {
        const TEXTS: [&str; 7] = [
            "",
            "/kubepods/burstable/pod1",
            "\u{1b}[2J\n\"\\\u{0}",
            "\u{2028}\u{7f}\u{ffff}",
            "Über 日本 🦀",
            "null",
            "9007199254740993",
        ];
        let text = TEXTS[usize::try_from(self.below(7)).unwrap()];
        match self.below(3) {
            0 => format!("{text}{}", self.next()),
            _ => text.to_owned(),
        }
    }
}

/// The parts of a sequence, a map or a struct.
struct Parts<'a> {
    of: &'a mut MadeUp,
    left: u64,
}

impl<'de> SeqAccess<'de> for Parts<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        seed.deserialize(&mut *self.of).map(Some)
    }
}

impl<'de> MapAccess<'de> for Parts<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        self.next_element_seed(seed)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        seed.deserialize(&mut *self.of)
    }
}

struct Variant<'a> {
    of: &'a mut MadeUp,
    name: &'static str,
}

impl<'de, 'a> EnumAccess<'de> for Variant<'a> {
    type Error = Error;
    type Variant = &'a mut MadeUp;

    fn variant_seed<V: DeserializeSeed<'de>>(
        self,
        seed: V,
    ) -> Result<(V::Value, &'a mut MadeUp), Error> {
        let name: StrDeserializer<'_, Error> = self.name.into_deserializer();
        Ok((seed.deserialize(name)?, self.of))
    }
}

impl<'de> VariantAccess<'de> for &mut MadeUp {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_tuple(len, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_tuple(fields.len(), visitor)
    }
}

macro_rules! integers {
    ($($method:ident $visit:ident $type:ty, $from:ident;)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            let value = self.$from(<$type>::MAX.into());
            visitor.$visit(<$type>::try_from(value).map_err(Error::custom)?)
        }
    )*};
}

impl<'de> Deserializer<'de> for &mut MadeUp {
    type Error = Error;

    integers! {
        deserialize_u8 visit_u8 u8, integer;
        deserialize_u16 visit_u16 u16, integer;
        deserialize_u32 visit_u32 u32, integer;
        deserialize_u64 visit_u64 u64, integer;
        deserialize_i8 visit_i8 i8, signed;
        deserialize_i16 visit_i16 i16, signed;
        deserialize_i32 visit_i32 i32, signed;
        deserialize_i64 visit_i64 i64, signed;
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let expected = &visitor as &dyn Expected;
        panic!("a type that no value is made up for: {expected}")
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_bool(self.below(2) == 0)
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let bits = u32::try_from(self.integer(u32::MAX.into())).unwrap();
        let any = f32::from_bits(bits);
        visitor.visit_f32(if any.is_finite() { any } else { 33.333_332 })
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let any = f64::from_bits(self.next());
        visitor.visit_f64(if any.is_finite() { any } else { 0.1 })
    }

    fn deserialize_i128<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_i128(self.signed(i64::MAX).into())
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_string(self.text())
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_string(self.text())
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.below(3) {
            0 => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let left = self.below(4);
        visitor.visit_seq(Parts { of: self, left })
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Error> {
        let left = len.try_into().unwrap();
        visitor.visit_seq(Parts { of: self, left })
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let left = self.below(4);
        visitor.visit_map(Parts { of: self, left })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let is_time = matches!(name, "Duration" | "SystemTime");
        self.shift = if is_time { 2 } else { 0 };
        let made = (&mut *self).deserialize_tuple(fields.len(), visitor);
        self.shift = 0;
        made
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let any = self.below(u64::try_from(variants.len()).unwrap());
        let (count, made) = self.enums.entry(name).or_insert((variants.len(), 0));
        assert_eq!(*count, variants.len(), "two enums are called {name}");
        let turn = (*made < variants.len()).then_some(*made);
        let name = variants[turn.unwrap_or_else(|| usize::try_from(any).unwrap())];
        *made += 1;
        visitor.visit_enum(Variant { of: self, name })
    }

    forward_to_deserialize_any! {
        char bytes byte_buf u128 unit_struct tuple_struct identifier ignored_any
    }
}

/// Returns the enums of a type, after each of its values has survived JSON.
fn round_trip<T>(values: u64) -> BTreeSet<&'static str>
where
    T: DeserializeOwned + Serialize + fmt::Debug,
{
    let mut made_up = MadeUp::default();
    for _ in 0..values {
        let value = T::deserialize(&mut made_up).unwrap();
        let text = serde_json::to_string(&value);
        let text = text.unwrap_or_else(|err| panic!("{err}: {value:?}"));
        let back: T = serde_json::from_str(&text).unwrap_or_else(|err| panic!("{err}: {text}"));
        assert_eq!(format!("{back:?}"), format!("{value:?}"), "{text}");
        assert_eq!(serde_json::to_string(&back).unwrap(), text);
    }
    let enums = made_up.enums.into_iter();
    let whole = enums.map(|(name, (variants, made))| {
        // Few subjects have few of the rarest: those of their inputs and effects are checked below.
        assert!(
            variants <= made || values < VALUES,
            "{made} values of {variants} of {name}"
        );
        name
    });
    whole.collect()
}

#[test]
fn every_value_of_the_subjects_an_input_and_an_effect_survives_json() {
    let all = |enums: BTreeSet<&'static str>, expected: &[&str]| {
        for name in expected {
            assert!(enums.contains(name), "{name} is missing: {enums:?}");
        }
    };
    all(
        round_trip::<Subjects>(VALUES / 100),
        &["KillSource", "StallOf", "KeptTrue", "Examination"],
    );
    all(
        round_trip::<Input>(VALUES),
        &[
            "Input",
            "KillInput",
            "OomScope",
            "PodChange",
            "PreviousAgent",
        ],
    );
    all(
        round_trip::<Effect>(VALUES),
        &[
            "Effect",
            "Query",
            "BlockingQuery",
            "Decision",
            "DiskDecision",
            "Occurrence",
            "Pressure",
        ],
    );
}
