//! The kubelet's threshold grammar and arithmetic.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::reading::{Reading, Signal};
use crate::units::Bytes;
use crate::units::quantity::{Quantity, QuantityError};

/// The value of a threshold: a quantity, a share of the capacity, or the smaller of both.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum ThresholdValue {
    Quantity(u64),
    /// Share of the capacity, from 0 to 1, in the kubelet's 32-bit arithmetic.
    Share(f32),
    /// The share, but not more than a quantity: 5 % of a large machine is not little. A kubelet has
    /// no such form.
    Capped {
        share: f32,
        /// In the signal's unit.
        most: u64,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Strength {
    /// `evictionHard`: no grace period; `memory.available` and `nodefs.available` reduce the
    /// allocatable resources.
    Hard,
    /// `evictionSoft`: with a grace period, which delays a kubelet's eviction but not the
    /// condition.
    Soft,
}

/// A level of a signal below which its resource is under pressure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Threshold {
    pub signal: Signal,
    /// The threshold is met if less than this is available; equality is not met.
    pub value: ThresholdValue,
    /// `evictionSoftGracePeriod`; zero for hard thresholds.
    pub grace_period: Duration,
    /// `evictionMinimumReclaim`: once met for its grace period, the threshold stays met until this
    /// much more is available.
    pub min_reclaim: Option<ThresholdValue>,
    pub strength: Strength,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ThresholdError {
    /// The text is the kubelet's.
    #[error("unsupported eviction signal {0:?}")]
    Signal(String),
    /// The value is neither digits with a percent sign nor a quantity.
    #[error("is not a percentage")]
    Percentage,
    /// `min(` is not followed by a percentage and a quantity.
    #[error("is not of the form min(PERCENTAGE,QUANTITY), such as min(5%,2Gi)")]
    Capped,
    #[error("is not between 0% and 100%")]
    OutOfRange,
    #[error("{0}")]
    Quantity(#[from] QuantityError),
    #[error("must be greater than zero")]
    NotPositive,
    #[error("must not be negative")]
    Negative,
    /// A part of a list lacks its separator.
    #[error("has a part {part:?} without '{separator}'")]
    Separator {
        part: String,
        /// `<` or `=`.
        separator: char,
    },
    /// A list names one signal twice.
    #[error("contains {0:?} twice")]
    Duplicate(String),
}

impl ThresholdValue {
    /// Parses the value of `evictionHard` and `evictionSoft`: `4Gi`, `10%`, `min(5%,2Gi)`, above
    /// zero, and at most 100 %.
    ///
    /// `None` for exactly `0%` and `100%`, which mean "ignore this signal".
    pub fn parse(text: &str) -> Result<Option<Self>, ThresholdError> {
        if text == "0%" || text == "100%" {
            return Ok(None);
        }
        if let Some(parts) = text.strip_prefix("min(") {
            return Self::parse_capped(parts).map(Some);
        }
        let value = Self::parse_any(text)?;
        match value {
            Self::Quantity(0) => Err(ThresholdError::NotPositive),
            Self::Quantity(_) | Self::Share(_) | Self::Capped { .. } => Ok(Some(value)),
        }
    }

    /// Parses `5%,2Gi)`. Both must be above zero.
    fn parse_capped(parts: &str) -> Result<Self, ThresholdError> {
        let parts = parts.strip_suffix(')').and_then(|all| all.split_once(','));
        let (share, most) = parts.ok_or(ThresholdError::Capped)?;
        match (
            Self::parse_any(share.trim())?,
            Self::parse_any(most.trim())?,
        ) {
            (Self::Share(share), Self::Quantity(most)) if share > 0.0 && most > 0 => {
                Ok(Self::Capped { share, most })
            }
            (Self::Share(_), Self::Quantity(_)) => Err(ThresholdError::NotPositive),
            _ => Err(ThresholdError::Capped),
        }
    }

    /// Parses the value of `evictionMinimumReclaim`: a quantity of zero or more, or a percentage
    /// above zero.
    pub fn parse_reclaim(text: &str) -> Result<Self, ThresholdError> {
        match Self::parse_any(text)? {
            Self::Share(share) if share <= 0.0 => Err(ThresholdError::NotPositive),
            value @ (Self::Quantity(_) | Self::Share(_) | Self::Capped { .. }) => Ok(value),
        }
    }

    fn parse_any(text: &str) -> Result<Self, ThresholdError> {
        let Some(digits) = text.strip_suffix('%') else {
            let quantity: Quantity = text.parse()?;
            // A negative quantity does not fit.
            return u64::try_from(quantity.value())
                .map(Self::Quantity)
                .map_err(|_| ThresholdError::Negative);
        };
        let unsigned = digits.strip_prefix(['+', '-']).unwrap_or(digits);
        if !unsigned.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
            return Err(ThresholdError::Percentage);
        }
        let percent: f32 = digits.parse().map_err(|_| ThresholdError::Percentage)?;
        if (0.0..=100.0).contains(&percent) {
            Ok(Self::Share(percent / 100.0))
        } else {
            Err(ThresholdError::OutOfRange)
        }
    }

    /// Returns the value in the signal's unit, rounded like the kubelet's: 10 % as a 32-bit float
    /// is slightly more than a tenth, so 10 % of 1,000,000,000 is 100,000,001.
    pub fn amount(self, capacity: u64) -> u64 {
        match self {
            Self::Quantity(n) => n,
            Self::Share(share) => share_of(share, capacity),
            Self::Capped { share, most } => share_of(share, capacity).min(most),
        }
    }

    /// Returns the computation of [`Self::amount`] from a capacity in bytes, for texts: `5% of
    /// 23.5Gi`, `min(5% of 23.5Gi, 2.0Gi)`. `None` for a quantity.
    pub fn computation(self, capacity: Bytes) -> Option<String> {
        match self {
            Self::Quantity(_) => None,
            Self::Share(share) => Some(format!("{} of {capacity}", Percent(share))),
            Self::Capped { share, most } => {
                let (share, most) = (Percent(share), Bytes::from_bytes(most));
                Some(format!("min({share} of {capacity}, {most})"))
            }
        }
    }

    /// Like [`Self::computation`], for a capacity in inodes or pids: `10% of 32768`.
    pub fn computation_of_count(self, capacity: u64) -> Option<String> {
        match self {
            Self::Quantity(_) => None,
            Self::Share(share) => Some(format!("{} of {capacity}", Percent(share))),
            Self::Capped { share, most } => {
                Some(format!("min({} of {capacity}, {most})", Percent(share)))
            }
        }
    }
}

#[expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "this is the kubelet's arithmetic; from float to integer `as` truncates and \
              saturates, and std has no other safe form"
)]
fn share_of(share: f32, capacity: u64) -> u64 {
    (capacity as f64 * f64::from(share)) as u64
}

struct Percent(f32);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Four digits suffice, and hide the binary representation.
        let percent = (f64::from(self.0) * 1e6).round() / 1e4;
        write!(f, "{percent}%")
    }
}

impl fmt::Display for ThresholdValue {
    /// Writes the value in the grammar, but not always as configured: `100Mi`, `5%`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quantity = |n: &u64| Quantity::from_bytes(Bytes::from_bytes(*n));
        match self {
            Self::Quantity(n) => quantity(n).fmt(f),
            Self::Share(share) => Percent(*share).fmt(f),
            Self::Capped { share, most } => {
                write!(f, "min({},{})", Percent(*share), quantity(most))
            }
        }
    }
}

impl Threshold {
    /// Parses a hard threshold, as in `evictionHard`: no grace period, nothing to reclaim.
    ///
    /// `None` if the signal is to be ignored: `0%`, `100%`, and `containerfs.*`, which a kubelet
    /// accepts and overwrites with the values of the file system of the containers.
    pub fn parse(signal: &str, value: &str) -> Result<Option<Self>, ThresholdError> {
        let signal = parse_signal(signal)?;
        let value = ThresholdValue::parse(value)?;
        Ok(signal.zip(value).map(|(signal, value)| Self {
            signal,
            value,
            grace_period: Duration::ZERO,
            min_reclaim: None,
            strength: Strength::Hard,
        }))
    }

    /// Returns the same threshold as a soft one, as in `evictionSoft`.
    #[must_use]
    pub const fn soft(self, grace_period: Duration) -> Self {
        Self {
            grace_period,
            strength: Strength::Soft,
            ..self
        }
    }

    pub fn is_met(&self, reading: &Reading) -> bool {
        i128::from(reading.available) < i128::from(self.value.amount(reading.capacity))
    }

    /// Returns true if a threshold that was met for its grace period is still met: less than the
    /// threshold and its minimum reclaim is available.
    pub fn is_unresolved(&self, reading: &Reading) -> bool {
        let reclaim = self
            .min_reclaim
            .map_or(0, |reclaim| reclaim.amount(reading.capacity));
        let until = i128::from(self.value.amount(reading.capacity)) + i128::from(reclaim);
        i128::from(reading.available) < until
    }
}

/// Signals that are accepted without effect, because the agent does not sample them.
pub const IGNORED_SIGNALS: [&str; 2] = ["containerfs.available", "containerfs.inodesFree"];

/// Parses the name of a signal that a user can configure. `None` for those of `containerfs`, which
/// are accepted and ignored.
///
/// `allocatableMemory.available` and `allocatablePid.available` are rejected: they are derived from
/// others.
pub fn parse_signal(name: &str) -> Result<Option<Signal>, ThresholdError> {
    if IGNORED_SIGNALS.contains(&name) {
        return Ok(None);
    }
    Signal::ALL
        .into_iter()
        .filter(|signal| !signal.is_derived())
        .find(|signal| signal.as_str() == name)
        .map(Some)
        .ok_or_else(|| ThresholdError::Signal(name.to_owned()))
}

/// Splits the form of the flags, `memory.available<100Mi,nodefs.available<10%`, into pairs. Grace
/// periods and reclaims use `=` instead of `<`. Blanks around the parts are removed. A comma within
/// parentheses belongs to its part.
pub fn split_list(text: &str, separator: char) -> Result<Vec<(&str, &str)>, ThresholdError> {
    let mut pairs: Vec<(&str, &str)> = Vec::new();
    let mut depth = 0_u32;
    let between = |c: char| {
        match c {
            '(' => depth = depth.saturating_add(1),
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    };
    for part in text.split(between).map(str::trim) {
        if part.is_empty() {
            continue; // The flag is `""`: no threshold.
        }
        let (name, value) =
            part.split_once(separator)
                .ok_or_else(|| ThresholdError::Separator {
                    part: part.to_owned(),
                    separator,
                })?;
        let (name, value) = (name.trim(), value.trim());
        if pairs.iter().any(|(other, _)| *other == name) {
            return Err(ThresholdError::Duplicate(name.to_owned()));
        }
        pairs.push((name, value));
    }
    Ok(pairs)
}

/// Adds the thresholds that the kubelet adds if `enforceNodeAllocatable` contains `pods`: each hard
/// `memory.available` applies to the pods cgroup too, with the same value and reclaim. Unlike the
/// kubelet, also does so for each hard `pid.available`.
pub fn with_allocatable(mut thresholds: Vec<Threshold>) -> Vec<Threshold> {
    let derived = |signal| match signal {
        Signal::MemoryAvailable => Some(Signal::AllocatableMemoryAvailable),
        Signal::PidAvailable => Some(Signal::AllocatablePidAvailable),
        Signal::AllocatableMemoryAvailable
        | Signal::AllocatablePidAvailable
        | Signal::NodefsAvailable
        | Signal::NodefsInodesFree
        | Signal::ImagefsAvailable
        | Signal::ImagefsInodesFree => None,
    };
    let copies: Vec<Threshold> = thresholds
        .iter()
        .filter(|t| t.strength == Strength::Hard)
        .filter_map(|t| {
            let signal = derived(t.signal)?;
            Some(Threshold { signal, ..*t })
        })
        .collect();
    thresholds.extend(copies);
    thresholds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_follow_the_grammar() {
        use ThresholdError as E;
        use ThresholdValue::{Quantity, Share};
        let no_number = || E::Quantity(QuantityError::NoNumber);
        let suffix = || E::Quantity(QuantityError::Suffix);
        let capped = |percent: f32, most| ThresholdValue::Capped {
            share: percent / 100.0,
            most,
        };
        let rows = [
            ("100Mi", Ok(Some(Quantity(104_857_600)))),
            ("1", Ok(Some(Quantity(1)))),
            ("1m", Ok(Some(Quantity(1)))),
            ("10%", Ok(Some(Share(10.0 / 100.0)))),
            ("0.5%", Ok(Some(Share(0.5 / 100.0)))),
            ("99.99%", Ok(Some(Share(99.99 / 100.0)))),
            // Only these two spellings mean "ignore".
            ("0%", Ok(None)),
            ("100%", Ok(None)),
            ("0.0%", Ok(Some(Share(0.0)))),
            ("100.0%", Ok(Some(Share(1.0)))),
            ("0", Err(E::NotPositive)),
            ("-1", Err(E::Negative)),
            ("-1%", Err(E::OutOfRange)),
            ("100.1%", Err(E::OutOfRange)),
            ("101%", Err(E::OutOfRange)),
            ("%", Err(E::Percentage)),
            ("ten%", Err(E::Percentage)),
            ("1e1%", Err(E::Percentage)),
            ("nan%", Err(E::Percentage)),
            ("10%%", Err(E::Percentage)),
            ("", Err(no_number())),
            ("100MB", Err(suffix())),
            ("min(5%,2Gi)", Ok(Some(capped(5.0, 2 << 30)))),
            ("min( 0.5% , 7 )", Ok(Some(capped(0.5, 7)))),
            ("min(2Gi,5%)", Err(E::Capped)),
            ("min(5%)", Err(E::Capped)),
            ("min(5%,2Gi", Err(E::Capped)),
            ("min(1Gi,2Gi)", Err(E::Capped)),
            ("min(0%,2Gi)", Err(E::NotPositive)),
            ("min(5%,0)", Err(E::NotPositive)),
            ("min(101%,2Gi)", Err(E::OutOfRange)),
            ("min(5%,-1)", Err(E::Negative)),
        ];
        for (text, expected) in rows {
            assert_eq!(ThresholdValue::parse(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_value_is_printed_as_people_write_it() {
        #[rustfmt::skip]
        let texts = [
            "100Mi", "1", "5%", "15%", "0.5%", "99.99%", "33.3%", "8%", "min(5%,2Gi)",
        ];
        for text in texts {
            let value = ThresholdValue::parse(text).unwrap().unwrap();
            assert_eq!(value.to_string(), text);
        }
    }

    #[test]
    fn a_reclaim_may_be_zero_but_not_zero_percent() {
        use ThresholdError as E;
        use ThresholdValue::{Quantity, Share};
        let rows = [
            ("0", Ok(Quantity(0))),
            ("500Mi", Ok(Quantity(524_288_000))),
            ("10%", Ok(Share(10.0 / 100.0))),
            ("100%", Ok(Share(1.0))),
            ("0%", Err(E::NotPositive)),
            ("-1", Err(E::Negative)),
            ("101%", Err(E::OutOfRange)),
            ("min(5%,2Gi)", Err(E::Quantity(QuantityError::NoNumber))),
        ];
        for (text, expected) in rows {
            assert_eq!(ThresholdValue::parse_reclaim(text), expected, "{text:?}");
        }
    }

    #[test]
    fn percentages_match_the_kubelets_vectors() {
        let rows = [
            (1_000_000_000, "10%", 100_000_001),
            (1_000_000_000, "15%", 150_000_005),
            (1_000_000_000, "5%", 50_000_000),
            (68_719_476_736, "15%", 10_307_921_920),
            (0, "15%", 0),
            (1_000_000_000, "100.0%", 1_000_000_000),
            (1, "99.99%", 0),
            (123, "7", 7),
        ];
        for (capacity, text, expected) in rows {
            let value = ThresholdValue::parse(text).unwrap().unwrap();
            assert_eq!(value.amount(capacity), expected, "{text} of {capacity}");
        }
    }

    #[test]
    fn a_cap_limits_a_share_on_a_large_machine() {
        const GI: u64 = 1 << 30;
        #[rustfmt::skip]
        let rows = [
            (16 * GI, "min(5%,2Gi)", 858_993_472, "min(5% of 16.0Gi, 2.0Gi)"),
            (40 * GI, "min(5%,2Gi)", 2 * GI, "min(5% of 40.0Gi, 2.0Gi)"),
            (512 * GI, "min(5%,2Gi)", 2 * GI, "min(5% of 512.0Gi, 2.0Gi)"),
            (512 * GI, "5%", 27_487_791_104, "5% of 512.0Gi"),
            (0, "min(5%,2Gi)", 0, "min(5% of 0, 2.0Gi)"),
        ];
        for (capacity, text, expected, computed) in rows {
            let threshold = Threshold::parse("memory.available", text).unwrap().unwrap();
            assert_eq!(
                threshold.value.amount(capacity),
                expected,
                "{text} of {capacity}"
            );
            let computation = threshold.value.computation(Bytes::from_bytes(capacity));
            assert_eq!(computation.as_deref(), Some(computed));
        }
        let low = |text, available| {
            let threshold = Threshold::parse("memory.available", text).unwrap().unwrap();
            threshold.is_met(&Reading {
                signal: Signal::MemoryAvailable,
                available,
                capacity: 512 * GI,
            })
        };
        let (much, little) = (25 << 30, (2 << 30) - 1);
        assert!(low("5%", much), "without a cap");
        assert!(!low("min(5%,2Gi)", much));
        assert!(low("min(5%,2Gi)", little));
        assert_eq!(
            ThresholdValue::Quantity(7).computation(Bytes::default()),
            None
        );
    }

    #[test]
    fn signals_are_those_of_the_kubelet() {
        for signal in Signal::ALL {
            let derived = signal.is_derived();
            let expected = if derived {
                Err(ThresholdError::Signal(signal.as_str().to_owned()))
            } else {
                Ok(Some(signal))
            };
            assert_eq!(parse_signal(signal.as_str()), expected);
        }
        assert_eq!(parse_signal("containerfs.available"), Ok(None));
        assert_eq!(parse_signal("containerfs.inodesFree"), Ok(None));
        assert_eq!(
            parse_signal("memory.free").unwrap_err().to_string(),
            r#"unsupported eviction signal "memory.free""#
        );
    }

    #[test]
    fn a_threshold_is_met_by_one_less_than_its_value() {
        let threshold = Threshold::parse("memory.available", "100")
            .unwrap()
            .unwrap();
        let at = |available| Reading {
            signal: Signal::MemoryAvailable,
            available,
            capacity: 1000,
        };
        let rows = [(101, false), (100, false), (99, true), (-1, true)];
        for (available, expected) in rows {
            assert_eq!(threshold.is_met(&at(available)), expected, "{available}");
        }

        let reclaiming = Threshold {
            min_reclaim: Some(ThresholdValue::Quantity(50)),
            ..threshold
        };
        let rows = [(151, false), (150, false), (149, true), (99, true)];
        for (available, expected) in rows {
            assert_eq!(
                reclaiming.is_unresolved(&at(available)),
                expected,
                "{available} with 50 to reclaim"
            );
        }
    }

    #[test]
    fn the_flag_form_splits_into_pairs() {
        #[rustfmt::skip]
        let rows = [
            ("", '<', Ok(vec![])),
            ("memory.available<100Mi", '<', Ok(vec![("memory.available", "100Mi")])),
            (" memory.available < 1Gi , nodefs.available<10% ", '<',
                Ok(vec![("memory.available", "1Gi"), ("nodefs.available", "10%")])),
            ("memory.available<min(5%,2Gi),pid.available<5%", '<',
                Ok(vec![("memory.available", "min(5%,2Gi)"), ("pid.available", "5%")])),
            ("memory.available=1m30s", '=', Ok(vec![("memory.available", "1m30s")])),
            ("memory.available>1Gi", '<',
                Err(ThresholdError::Separator { part: "memory.available>1Gi".to_owned(), separator: '<' })),
            ("memory.available", '<',
                Err(ThresholdError::Separator { part: "memory.available".to_owned(), separator: '<' })),
            ("a<1,a<2", '<', Err(ThresholdError::Duplicate("a".to_owned()))),
        ];
        for (text, separator, expected) in rows {
            assert_eq!(split_list(text, separator), expected, "{text:?}");
        }
    }

    #[test]
    fn only_hard_thresholds_on_memory_and_pids_are_copied_to_the_pods_cgroup() {
        let parse = |signal, value| Threshold::parse(signal, value).unwrap().unwrap();
        let hard = Threshold {
            min_reclaim: Some(ThresholdValue::Quantity(7)),
            ..parse("memory.available", "100Mi")
        };
        let soft = parse("memory.available", "1Gi").soft(Duration::from_secs(30));
        let disk = parse("nodefs.available", "10%");

        let pids = parse("pid.available", "5%");

        let all = with_allocatable(vec![hard, soft, disk, pids]);

        let copy = |of: Threshold, signal| Threshold { signal, ..of };
        let memory_copy = copy(hard, Signal::AllocatableMemoryAvailable);
        let pids_copy = copy(pids, Signal::AllocatablePidAvailable);
        assert_eq!(all, [hard, soft, disk, pids, memory_copy, pids_copy]);
    }
}
