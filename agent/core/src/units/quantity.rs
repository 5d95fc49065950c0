//! Kubernetes quantities: parse, compare by value, print canonically.
//!
//! The grammar, the rounding and the canonical form are those of
//! <https://github.com/kubernetes/apimachinery/blob/v0.33.0/pkg/api/resource/quantity.go>.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use super::Bytes;

const NANO: i128 = 1_000_000_000;

/// The Kubernetes library's maximum of a parsed value: the largest 64-bit integer.
const MOST: i128 = (1 << 63) - 1;

/// Binary suffixes with their power of 1024, largest first.
const BINARY: [(&str, u32); 6] = [
    ("Ei", 6),
    ("Pi", 5),
    ("Ti", 4),
    ("Gi", 3),
    ("Mi", 2),
    ("Ki", 1),
];

/// Decimal suffixes with their power of 10, largest first.
const DECIMAL: [(&str, i32); 10] = [
    ("E", 18),
    ("P", 15),
    ("T", 12),
    ("G", 9),
    ("M", 6),
    ("k", 3),
    ("", 0),
    ("m", -3),
    ("u", -6),
    ("n", -9),
];

/// A Kubernetes quantity. Equality and order are by value, not by spelling.
#[derive(Debug, Clone, Copy, Default)]
pub struct Quantity {
    nano: i128,
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Format {
    /// `7910m`, `8`, `2k`.
    #[default]
    DecimalSi,
    /// `16374032Ki`.
    BinarySi,
    /// `2e3`.
    DecimalExponent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// There is no digit before the suffix, or more than one point.
    #[error("has no number")]
    NoNumber,
    #[error("ends in an unknown suffix (known: n u m k M G T P E, Ki Mi Gi Ti Pi Ei, e3)")]
    Suffix,
}

impl Quantity {
    /// Makes a quantity that prints with a binary suffix, such as `16374032Ki`.
    pub fn from_bytes(bytes: Bytes) -> Self {
        Self {
            nano: i128::from(bytes.get()) * NANO,
            format: Format::BinarySi,
        }
    }

    /// Makes a number of things, such as CPUs or pods, that prints as `8`.
    pub fn from_count(n: u64) -> Self {
        Self {
            nano: i128::from(n) * NANO,
            format: Format::DecimalSi,
        }
    }

    /// Returns the value in whole units, rounded away from zero as the Kubernetes library does.
    pub fn value(self) -> i64 {
        i64::try_from(self.whole()).unwrap_or(if self.is_negative() {
            i64::MIN
        } else {
            i64::MAX
        })
    }

    pub const fn is_zero(self) -> bool {
        self.nano == 0
    }

    pub const fn is_negative(self) -> bool {
        self.nano < 0
    }

    /// Keeps the format of `self` unless that is zero.
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self {
            nano: self.nano.saturating_add(other.nano),
            format: self.format_with(other),
        }
    }

    /// Keeps the format of `self` unless that is zero. The result may be negative.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self {
            nano: self.nano.saturating_sub(other.nano),
            format: self.format_with(other),
        }
    }

    /// Returns zero if `other` is larger: the remainder of a capacity.
    #[must_use]
    pub fn less(self, other: Self) -> Self {
        let left = self.saturating_sub(other);
        Self {
            nano: left.nano.max(0),
            ..left
        }
    }

    const fn format_with(self, other: Self) -> Format {
        if self.is_zero() {
            other.format
        } else {
            self.format
        }
    }

    /// Rounds away from zero.
    const fn whole(self) -> i128 {
        let rest = self.nano % NANO;
        self.nano / NANO + rest.signum()
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nano == other.nano
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nano.cmp(&other.nano)
    }
}

enum Scale {
    /// Moves the decimal point to the right by this many places.
    Ten(i64),
    /// Multiplies by this power of 1024.
    Binary(u32),
}

impl FromStr for Quantity {
    type Err = QuantityError;

    /// Parses the whole Kubernetes grammar. A value finer than nano is rounded away from zero; one
    /// that exceeds 64 bits is limited to them.
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let (negative, unsigned) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let is_number = |c: char| c.is_ascii_digit() || c == '.';
        let end = unsigned.find(|c| !is_number(c)).unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.len() + fraction.len() == 0 || fraction.contains('.') {
            return Err(QuantityError::NoNumber);
        }

        let (scale, format) = parse_suffix(suffix)?;
        let amount = match scale {
            Scale::Binary(power) => nano(whole, fraction, 1024_i128.pow(power)),
            Scale::Ten(places) => shifted_nano(whole, fraction, places),
        };
        // The library gives up the binary format for values below one.
        let format = if format == Format::BinarySi && 0 < amount && amount < NANO {
            Format::DecimalSi
        } else {
            format
        };
        Ok(Self {
            nano: if negative { -amount } else { amount },
            format,
        })
    }
}

fn parse_suffix(suffix: &str) -> Result<(Scale, Format), QuantityError> {
    if let Some((_, power)) = BINARY.iter().find(|(name, _)| *name == suffix) {
        return Ok((Scale::Binary(*power), Format::BinarySi));
    }
    if let Some((_, places)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
        return Ok((Scale::Ten(i64::from(*places)), Format::DecimalSi));
    }
    let exponent = suffix
        .strip_prefix(['e', 'E'])
        .and_then(|digits| digits.parse().ok())
        .ok_or(QuantityError::Suffix)?;
    Ok((Scale::Ten(exponent), Format::DecimalExponent))
}

/// Returns `whole.fraction` with the point moved `places` to the right, in nano.
fn shifted_nano(whole: &str, fraction: &str, places: i64) -> i128 {
    /// Beyond this, the value exceeds the maximum or is less than one nano.
    const FAR: i64 = 64;

    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return 0;
    }
    let fraction_len = i64::try_from(fraction.len()).unwrap_or(i64::MAX);
    let len = i64::try_from(digits.len()).unwrap_or(i64::MAX);
    // The number of digits before the point after it has moved.
    let point = len.saturating_sub(fraction_len).saturating_add(places);
    if point > FAR {
        return MOST * NANO;
    }
    if point < -FAR {
        return 1;
    }
    let pad = |n: i64| "0".repeat(usize::try_from(n).unwrap_or(0));
    let digits = format!("{}{digits}{}", pad(-point), pad(point - len));
    let (whole, fraction) = digits.split_at(usize::try_from(point).unwrap_or(0));
    nano(whole, fraction, 1)
}

/// Returns `whole.fraction * factor` in nano, rounded up and limited. Both texts contain only
/// digits.
fn nano(whole: &str, fraction: &str, factor: i128) -> i128 {
    let digit = |b: u8| i128::from(b.saturating_sub(b'0'));
    let whole = whole
        .bytes()
        .fold(0_i128, |sum, b| {
            sum.saturating_mul(10).saturating_add(digit(b))
        })
        .saturating_mul(factor)
        .min(MOST);

    // From the last digit to the first: each division by ten may leave a remainder, and any
    // remainder means that the true value is higher.
    let unit = factor * NANO;
    let mut sum = 0;
    let mut rest = 0;
    for b in fraction.bytes().rev() {
        sum += digit(b) * unit;
        rest |= sum % 10;
        sum /= 10;
    }
    let rounded = sum + i128::from(rest != 0);
    (whole * NANO + rounded).min(MOST * NANO)
}

impl fmt::Display for Quantity {
    /// Writes the canonical form: the largest suffix of its family that leaves an integer.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SMALLEST_BINARY: i128 = 1024 * NANO;

        match self.format {
            Format::BinarySi if self.nano.abs() >= SMALLEST_BINARY => self.fmt_binary(f),
            Format::BinarySi | Format::DecimalSi | Format::DecimalExponent => self.fmt_decimal(f),
        }
    }
}

impl Quantity {
    fn fmt_binary(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = self.whole();
        for (suffix, power) in BINARY {
            let unit = 1024_i128.pow(power);
            if whole % unit == 0 {
                return write!(f, "{}{suffix}", whole / unit);
            }
        }
        write!(f, "{whole}")
    }

    fn fmt_decimal(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_zero() {
            return f.write_str("0");
        }
        for (suffix, places) in DECIMAL {
            // In nano, so that the smallest suffix is ten to the zero.
            let unit = 10_i128.pow(u32::try_from(places + 9).unwrap_or(0));
            if self.nano % unit != 0 {
                continue;
            }
            let number = self.nano / unit;
            return match self.format {
                Format::DecimalExponent if places != 0 => write!(f, "{number}e{places}"),
                Format::DecimalExponent | Format::DecimalSi | Format::BinarySi => {
                    write!(f, "{number}{suffix}")
                }
            };
        }
        Ok(()) // Never reached: everything is a multiple of one nano.
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Quantity {
        text.parse()
            .unwrap_or_else(|err| panic!("{text:?} should parse, but {err}"))
    }

    #[test]
    fn every_form_of_the_grammar_has_its_value_and_canonical_spelling() {
        // text, nano, canonical
        const N: i128 = NANO;
        let rows: &[(&str, i128, &str)] = &[
            ("0", 0, "0"),
            ("-0", 0, "0"),
            ("0Ki", 0, "0"),
            ("0e9999999999", 0, "0"),
            ("8", 8 * N, "8"),
            ("+8", 8 * N, "8"),
            ("-8", -8 * N, "-8"),
            ("8.", 8 * N, "8"),
            (".5", N / 2, "500m"),
            ("-1.5", -3 * N / 2, "-1500m"),
            ("007", 7 * N, "7"),
            ("1n", 1, "1n"),
            ("1u", 1_000, "1u"),
            ("7910m", 7_910_000_000, "7910m"),
            ("1000m", N, "1"),
            ("2k", 2_000 * N, "2k"),
            ("2000", 2_000 * N, "2k"),
            ("1500k", 1_500_000 * N, "1500k"),
            ("3M", 3_000_000 * N, "3M"),
            ("3G", 3_000_000_000 * N, "3G"),
            ("3T", 3_000_000_000_000 * N, "3T"),
            ("3P", 3_000_000_000_000_000 * N, "3P"),
            ("3E", 3_000_000_000_000_000_000 * N, "3E"),
            ("1Ki", 1_024 * N, "1Ki"),
            ("1023", 1_023 * N, "1023"),
            ("1024Ki", (1 << 20) * N, "1Mi"),
            ("1.5Gi", 1_610_612_736 * N, "1536Mi"),
            ("0.5Ki", 512 * N, "512"),
            ("0.0001Ki", 102_400_000, "102400u"),
            ("1Ti", (1 << 40) * N, "1Ti"),
            ("1Pi", (1 << 50) * N, "1Pi"),
            ("7Ei", (7 << 60) * N, "7Ei"),
            ("12e6", 12_000_000 * N, "12e6"),
            ("12E6", 12_000_000 * N, "12e6"),
            ("1e3", 1_000 * N, "1e3"),
            ("1e0", N, "1"),
            ("1e-3", N / 1000, "1e-3"),
            ("15e+2", 1_500 * N, "1500"),
            // Finer than nano: away from zero.
            ("0.0000000001", 1, "1n"),
            ("-0.0000000001", -1, "-1n"),
            ("1.0000000001", N + 1, "1000000001n"),
            ("0.1n", 1, "1n"),
            ("1e-99", 1, "1e-9"),
            // Limited to 64 bits.
            ("9223372036854775807", MOST * N, "9223372036854775807"),
            ("9223372036854775808", MOST * N, "9223372036854775807"),
            ("8Ei", MOST * N, "9223372036854775807"),
            ("1e400", MOST * N, "9223372036854775807"),
            ("-1e400", -MOST * N, "-9223372036854775807"),
        ];
        for (text, nano, canonical) in rows {
            let quantity = parse(text);
            assert_eq!(quantity.nano, *nano, "value of {text:?}");
            assert_eq!(quantity.to_string(), *canonical, "spelling of {text:?}");
            assert_eq!(parse(canonical), quantity, "{text:?} survives a round trip");
        }
    }

    #[test]
    fn an_invalid_quantity_is_rejected() {
        use QuantityError::{NoNumber, Suffix};
        let rows = [
            ("", NoNumber),
            ("-", NoNumber),
            (".", NoNumber),
            ("Mi", NoNumber),
            ("1.2.3", NoNumber),
            ("1K", Suffix),
            ("1ki", Suffix),
            ("1 Mi", Suffix),
            ("1e", Suffix),
            ("1e1.5", Suffix),
            ("1MB", Suffix),
            ("--1", NoNumber),
            ("1\n", Suffix),
            ("١", NoNumber),
        ];
        for (text, expected) in rows {
            assert_eq!(text.parse::<Quantity>(), Err(expected), "{text:?}");
        }
    }

    #[test]
    fn equality_and_order_are_by_value() {
        assert_eq!(parse("1024"), parse("1Ki"));
        assert_eq!(parse("1.0"), parse("1000m"));
        assert!(parse("1023") < parse("1Ki"));
        assert!(parse("1k") < parse("1Ki"));
        assert!(parse("-1") < Quantity::default());
    }

    #[test]
    fn whole_values_round_away_from_zero() {
        let rows = [
            ("0", 0),
            ("1n", 1),
            ("999m", 1),
            ("1000m", 1),
            ("1001m", 2),
            ("-1m", -1),
            ("-1001m", -2),
            ("8Ei", i64::MAX),
        ];
        for (text, expected) in rows {
            assert_eq!(parse(text).value(), expected, "{text}");
        }
        let most = Quantity::from_count(u64::MAX);
        assert_eq!(most.value(), i64::MAX, "limited to 64 bits");
    }

    #[test]
    fn sources_choose_the_spelling() {
        #[rustfmt::skip]
        let rows = [
            (Quantity::from_bytes(Bytes::from_kib(16_374_032)), "16374032Ki"),
            (Quantity::from_bytes(Bytes::from_bytes(94_489_280_513)), "94489280513"),
            (Quantity::from_bytes(Bytes::from_bytes(1 << 30)), "1Gi"),
            (Quantity::from_bytes(Bytes::from_bytes(1000)), "1k"),
            (Quantity::from_count(110), "110"),
            (Quantity::default(), "0"),
        ];
        for (quantity, expected) in rows {
            assert_eq!(quantity.to_string(), expected);
        }
    }

    #[test]
    fn sums_and_differences_keep_the_left_spelling() {
        let rows = [
            (parse("1Gi").saturating_sub(parse("100Mi")), "924Mi"),
            (parse("8").saturating_sub(parse("90m")), "7910m"),
            (parse("1Ki").saturating_sub(parse("2Ki")), "-1Ki"),
            (parse("1Ki").less(parse("2Ki")), "0"),
            (parse("2Ki").less(parse("2Ki")), "0"),
            (parse("3Ki").less(parse("2Ki")), "1Ki"),
            (Quantity::default().saturating_add(parse("1Gi")), "1Gi"),
            // Less than one has lost its binary spelling.
            (
                parse("0.0001Ki").saturating_add(parse("1Gi")),
                "1073741824102400u",
            ),
            (parse("500m").saturating_add(parse("500m")), "1"),
        ];
        for (quantity, expected) in rows {
            assert_eq!(quantity.to_string(), expected);
        }
    }
}
