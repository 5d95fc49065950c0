//! What matters of an X.509 certificate: its validity, its subject and its key.
//!
//! rustls checks that a certificate is one and fits its key, but shows neither its validity nor its
//! subject.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::der::{
    CONTEXT_0, Elements, GENERALIZED_TIME, INTEGER, OID, PRINTABLE, SEQUENCE, SET, UTC_TIME, UTF8,
};

/// `2.5.4.3`.
pub(super) const COMMON_NAME: &[u8] = &[0x55, 4, 3];
/// `2.5.4.10`.
pub(super) const ORGANIZATION: &[u8] = &[0x55, 4, 10];

/// The subject of a certificate or a request. Other attributes are ignored, as the API server does.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Subject {
    /// The user.
    pub common_name: String,
    /// The user's groups.
    pub organizations: Vec<String>,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CN={}", self.common_name)?;
        self.organizations
            .iter()
            .try_for_each(|group| write!(f, ",O={group}"))
    }
}

/// The parts of a certificate that are checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fields {
    /// The start of its validity.
    pub not_before: SystemTime,
    /// The end of its validity.
    pub not_after: SystemTime,
    /// The user and its groups.
    pub subject: Subject,
    /// The `SubjectPublicKeyInfo`.
    pub public_key: Vec<u8>,
}

/// Parses a certificate in DER; `None` if it is none. Its signature is not checked: the server does.
pub fn parse(der: &[u8]) -> Option<Fields> {
    let mut certificate = Elements(der).inside(SEQUENCE)?;
    let mut signed = certificate.inside(SEQUENCE)?;
    let mut after_version = signed;
    if after_version.expect(CONTEXT_0).is_some() {
        signed = after_version;
    }
    signed.expect(INTEGER)?;
    let _algorithm = signed.expect(SEQUENCE)?;
    let _issuer = signed.expect(SEQUENCE)?;
    let mut validity = signed.inside(SEQUENCE)?;
    let (not_before, not_after) = (time(&mut validity)?, time(&mut validity)?);
    let subject = subject(signed.inside(SEQUENCE)?)?;
    let (SEQUENCE, _, public_key) = signed.next()? else {
        return None;
    };
    Some(Fields {
        not_before,
        not_after,
        subject,
        public_key: public_key.to_owned(),
    })
}

/// The attributes of a name.
pub(super) fn subject(mut name: Elements<'_>) -> Option<Subject> {
    let mut subject = Subject::default();
    while !name.0.is_empty() {
        let mut set = name.inside(SET)?;
        while !set.0.is_empty() {
            let mut attribute = set.inside(SEQUENCE)?;
            let kind = attribute.expect(OID)?;
            let (tag, value, _) = attribute.next()?;
            if kind != COMMON_NAME && kind != ORGANIZATION {
                continue;
            }
            let value = match tag {
                UTF8 | PRINTABLE => str::from_utf8(value).ok()?.to_owned(),
                _ => return None,
            };
            if kind == COMMON_NAME {
                subject.common_name = value;
            } else {
                subject.organizations.push(value);
            }
        }
    }
    Some(subject)
}

/// A time in UTC, to the second, as RFC 5280 requires it.
fn time(elements: &mut Elements<'_>) -> Option<SystemTime> {
    let (tag, text, _) = elements.next()?;
    let text = text.strip_suffix(b"Z")?;
    let (century, text) = match tag {
        UTC_TIME => (None, text),
        GENERALIZED_TIME => {
            let (century, rest) = text.split_at_checked(2)?;
            (Some(number(century)?), rest)
        }
        _ => return None,
    };
    let parts: Option<Vec<u64>> = text.chunks(2).map(number).collect();
    let [
        year,
        month @ 1..=12,
        day @ 1..=31,
        hour @ 0..24,
        minute @ 0..60,
        second @ 0..60,
    ] = *parts?
    else {
        return None;
    };
    let year = match century {
        Some(century) => century.checked_mul(100)?.checked_add(year)?,
        None if year < 50 => year.checked_add(2000)?,
        None => year.checked_add(1900)?,
    };
    let hours = days(year, month, day)?.checked_mul(24)?.checked_add(hour)?;
    let minutes = hours.checked_mul(60)?.checked_add(minute)?;
    let seconds = minutes.checked_mul(60)?.checked_add(second)?;
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

/// Two digits.
fn number(digits: &[u8]) -> Option<u64> {
    let [tens @ b'0'..=b'9', ones @ b'0'..=b'9'] = *digits else {
        return None;
    };
    u64::from(tens & 0xf)
        .checked_mul(10)?
        .checked_add(u64::from(ones & 0xf))
}

/// Days since 1970-01-01; `None` before. A year begins in March here, so that the day of a leap year
/// is its last.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    /// Days from 0000-03-01 to 1970-01-01.
    const EPOCH: u64 = 719_468;

    let (year, month) = match month {
        1 | 2 => (year.checked_sub(1)?, month.checked_add(9)?),
        _ => (year, month.checked_sub(3)?),
    };
    let of_months = month.checked_mul(153)?.checked_add(2)? / 5;
    let leap_days = (year / 4)
        .checked_sub(year / 100)?
        .checked_add(year / 400)?;
    let of_years = year.checked_mul(365)?.checked_add(leap_days)?;
    let all = of_years.checked_add(of_months)?.checked_add(day)?;
    all.checked_sub(EPOCH)?.checked_sub(1)
}

#[cfg(test)]
mod tests {
    use super::super::der::element;
    use super::*;

    fn seconds(tag: u8, text: &str) -> Option<u64> {
        let written = element(tag, &[text.as_bytes()]);
        let at = time(&mut Elements(&written))?;
        Some(at.duration_since(UNIX_EPOCH).unwrap().as_secs())
    }

    #[test]
    fn times_are_read_in_both_forms() {
        let rows = [
            (UTC_TIME, "700101000000Z", Some(0)),
            (UTC_TIME, "260101000000Z", Some(1_767_225_600)),
            (UTC_TIME, "491231235959Z", Some(2_524_607_999)),
            (GENERALIZED_TIME, "20240229120000Z", Some(1_709_208_000)),
            (GENERALIZED_TIME, "20240301000000Z", Some(1_709_251_200)),
            // Of a certificate that never expires.
            (GENERALIZED_TIME, "99991231235959Z", Some(253_402_300_799)),
            (UTC_TIME, "691231235959Z", None),
            (UTC_TIME, "261301000000Z", None),
            (UTC_TIME, "260101000000", None),
            (UTC_TIME, "2601010000Z", None),
            (UTC_TIME, "26010100000+Z", None),
            (GENERALIZED_TIME, "Z", None),
            (PRINTABLE, "260101000000Z", None),
        ];
        for (tag, text, expected) in rows {
            assert_eq!(seconds(tag, text), expected, "{text}");
        }
    }
}
