//! The ids of incidents: `<boot id>-<number>`.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::clock::BootNanos;

/// The number of assigned numbers that are remembered. Facts of one nanosecond are decided within
/// fewer incidents than this.
const REMEMBERED: usize = 1024;

/// Identifies a boot of the machine: `/proc/sys/kernel/random/boot_id`. If that cannot be read, a
/// random number identifies the start of the agent instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "(u64, u64)", into = "(u64, u64)")]
pub struct BootId(pub u128);

/// Identifies an incident on all machines: the boot, and the nanoseconds from the boot to the first
/// fact, plus one for as long as another incident has that number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct IncidentId {
    pub boot: BootId,
    pub number: u64,
}

/// Assigns the ids of one boot. Needs no history: numbers of an earlier start lie in the past.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct IncidentIds {
    boot: BootId,
    /// The largest [`REMEMBERED`] numbers.
    taken: BTreeSet<u64>,
}

impl IncidentIds {
    pub const fn new(boot: BootId) -> Self {
        Self {
            boot,
            taken: BTreeSet::new(),
        }
    }

    /// Returns the id of an incident whose first fact is of this moment.
    pub fn assign(&mut self, first: BootNanos) -> IncidentId {
        let mut number = first.0;
        while !self.taken.insert(number) {
            number = number.wrapping_add(1);
        }
        if self.taken.len() > REMEMBERED {
            self.taken.pop_first();
        }
        IncidentId {
            boot: self.boot,
            number,
        }
    }
}

impl FromStr for BootId {
    type Err = ();

    /// Parses a UUID in the kernel's form: 36 characters, lower case.
    fn from_str(text: &str) -> Result<Self, ()> {
        let digits: String = text.split('-').collect();
        let id = u128::from_str_radix(&digits, 16).map(Self).map_err(drop)?;
        (id.to_string() == text).then_some(id).ok_or(())
    }
}

impl fmt::Display for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = format!("{:032x}", self.0);
        let mut rest = digits.as_str();
        for length in [8, 4, 4, 4] {
            let (part, after) = rest.split_at(length);
            write!(f, "{part}-")?;
            rest = after;
        }
        f.write_str(rest)
    }
}

impl FromStr for IncidentId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (boot, number) = text.rsplit_once('-').ok_or(())?;
        let id = Self {
            boot: boot.parse()?,
            number: number.parse().map_err(drop)?,
        };
        (id.to_string() == text).then_some(id).ok_or(())
    }
}

impl fmt::Display for IncidentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.boot, self.number)
    }
}

impl From<(u64, u64)> for BootId {
    fn from((high, low): (u64, u64)) -> Self {
        Self(u128::from(high) << 64 | u128::from(low))
    }
}

impl From<BootId> for (u64, u64) {
    fn from(BootId(id): BootId) -> Self {
        let half = |id| u64::try_from(id & u128::from(u64::MAX)).unwrap_or_default();
        (half(id >> 64), half(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_written_and_read_in_one_form_only() {
        let text = "0d5c1a3e-0b7f-4e1c-9a52-00c0ffee0001-8412000000123";
        let id: IncidentId = text.parse().unwrap();
        assert_eq!(
            (id.number, id.to_string().as_str()),
            (8_412_000_000_123, text)
        );
        let rows = [
            "",
            "8412000000123",
            "0d5c1a3e-0b7f-4e1c-9a52-00c0ffee0001",
            "0D5C1A3E-0b7f-4e1c-9a52-00c0ffee0001-1",
            "0d5c1a3e0b7f-4e1c-9a52-00c0ffee0001-1",
            "0d5c1a3e-0b7f-4e1c-9a52-00c0ffee0001-+1",
            "0d5c1a3e-0b7f-4e1c-9a52-00c0ffee0001-01",
            "0d5c1a3e-0b7f-4e1c-9a52-00c0ffee0001-99999999999999999999",
        ];
        for text in rows {
            assert_eq!(text.parse::<IncidentId>(), Err(()), "{text}");
        }
    }

    #[test]
    fn incidents_of_one_nanosecond_have_different_ids() {
        let mut ids = IncidentIds::new(BootId(7));
        let mut number = |at| ids.assign(BootNanos(at)).number;
        assert_eq!([5, 5, 6, 5, 9].map(&mut number), [5, 6, 7, 8, 9]);
        for at in 100..100 + REMEMBERED as u64 {
            assert_eq!(number(at), at);
        }
        assert_eq!(ids.taken.len(), REMEMBERED);
    }
}
