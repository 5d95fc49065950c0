//! Durations as Go writes them: `1m30s`, `250ms`, `1.5h`.

use std::time::Duration;

const UNITS: [(&str, u128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Parses a Go duration that is not negative. The error is the rest of a sentence about `text`.
pub fn parse(text: &str) -> Result<Duration, String> {
    let negative = text.starts_with('-');
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err("is not a duration".to_owned());
    }
    let mut total: u128 = 0;
    while !rest.is_empty() {
        let (number, after) = split_at_first(rest, |c| !c.is_ascii_digit() && c != '.');
        let (unit, after) = split_at_first(after, |c| c.is_ascii_digit() || c == '.');
        let nanos = UNITS
            .iter()
            .find(|(name, _)| *name == unit)
            .map(|(_, nanos)| *nanos)
            .ok_or("is not a duration: each number needs one of ns, us, ms, s, m, h")?;
        total = total.saturating_add(part(number, nanos).ok_or("is not a duration")?);
        rest = after;
    }
    if negative && total != 0 {
        return Err("must not be negative".to_owned());
    }
    // Go's limit: signed 64 bits, about 292 years.
    let nanos = i64::try_from(total).map_err(|_| "is too long for a duration".to_owned())?;
    Ok(Duration::from_nanos(nanos.unsigned_abs()))
}

fn split_at_first(text: &str, boundary: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(boundary).unwrap_or(text.len()))
}

/// Returns `number * unit` in nanoseconds. The number may have a fraction.
fn part(number: &str, unit: u128) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let digits = |text: &str| match text {
        "" => Some(0),
        text => text.parse::<u128>().ok(),
    };
    // An hour has fewer than 13 digits of nanoseconds.
    let fraction = fraction.get(..13).unwrap_or(fraction);
    let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    let nanos = digits(fraction)?.checked_mul(unit)? / scale;
    digits(whole)?.checked_mul(unit)?.checked_add(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_durations_parse() {
        let rows = [
            ("0", 0),
            ("0s", 0),
            ("-0s", 0),
            ("1ns", 1),
            ("2us", 2_000),
            ("2µs", 2_000),
            ("250ms", 250_000_000),
            ("1.5s", 1_500_000_000),
            (".5s", 500_000_000),
            ("1.s", 1_000_000_000),
            ("+10s", 10_000_000_000),
            ("1m30s", 90_000_000_000),
            ("1h", 3_600_000_000_000),
            ("1h0m0.1s", 3_600_100_000_000),
            ("0.33333333333333333333h", 1_199_999_999_999),
            ("9223372036854775807ns", 9_223_372_036_854_775_807),
        ];
        for (text, nanos) in rows {
            assert_eq!(parse(text), Ok(Duration::from_nanos(nanos)), "{text:?}");
        }
    }

    #[test]
    fn invalid_durations_are_refused() {
        #[rustfmt::skip]
        let rows = [
            "", "-", "5", "5x", "s", ".s", "1..5s", "1m30", "5 s", "-5s", "1d", "1M",
            "9223372036854775808ns", "99999999999999999999999999999999999999999h",
        ];
        for text in rows {
            assert!(parse(text).is_err(), "{text:?} should be refused");
        }
    }
}
