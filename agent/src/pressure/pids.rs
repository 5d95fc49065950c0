//! The levels at which the kernel wakes us: `pid.available` turned round into a count of pids.

use crate::pressure::threshold::Threshold;
use crate::reading::Signal;

/// Counts of pids at which something happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PidLevels {
    /// At or over this many a threshold is met.
    pub high: u32,
    /// At or under this many it is over, with room enough that the count cannot flutter.
    pub low: u32,
    /// A change by this many is worth a record.
    pub trend_step: u32,
}

/// Least distance between the levels.
const LEAST_GAP: u64 = 64;
/// Part of the capacity that lies between the levels on a large machine.
const GAP_PART: u64 = 50;
/// Part of the capacity that makes a step.
const STEP_PART: u64 = 64;

/// The levels for a machine that can hold `capacity` pids. `None` where no threshold is set on
/// `pid.available`, or it asks for more than there can be.
#[must_use]
pub fn pid_levels<'a>(
    thresholds: impl Iterator<Item = &'a Threshold>,
    capacity: u64,
) -> Option<PidLevels> {
    let amount = thresholds
        .filter(|threshold| threshold.signal == Signal::PidAvailable)
        .map(|threshold| threshold.value.amount(capacity))
        .max()?;
    // Met when less than `amount` is left: strictly, so one pid later than the bare difference.
    let high = capacity.checked_sub(amount)?.checked_add(1)?;
    let low = high.saturating_sub(LEAST_GAP.max(capacity / GAP_PART));
    Some(PidLevels {
        high: u32::try_from(high).ok()?,
        low: u32::try_from(low).ok()?,
        trend_step: u32::try_from((capacity / STEP_PART).max(1)).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels(value: &str, capacity: u64) -> Option<PidLevels> {
        let threshold = Threshold::parse("pid.available", value).unwrap();
        pid_levels(threshold.iter(), capacity)
    }

    #[test]
    fn the_high_level_is_the_first_count_that_meets_the_threshold() {
        let rows = [
            (
                "1000",
                32_768,
                Some((31_769, 31_769 - 655, 512)),
                "a quantity",
            ),
            (
                "10%",
                100_000,
                Some((90_000, 88_000, 1_562)),
                "a share, in the kubelet's floats",
            ),
            ("32768", 32_768, Some((1, 0, 512)), "everything"),
            ("32769", 32_768, None, "more than there can be"),
            ("0%", 32_768, None, "turned off"),
        ];
        for (value, capacity, expected, why) in rows {
            let expected = expected.map(|(high, low, trend_step)| PidLevels {
                high,
                low,
                trend_step,
            });
            assert_eq!(levels(value, capacity), expected, "{why}");
        }
    }

    #[test]
    fn the_high_level_agrees_with_the_threshold_itself() {
        let threshold = Threshold::parse("pid.available", "5%").unwrap().unwrap();
        for capacity in [1_000_u64, 32_768, 192_731, 4_194_304] {
            let levels = pid_levels([threshold].iter(), capacity).unwrap();
            let met = |tasks: u64| {
                let available = i64::try_from(capacity - tasks).unwrap();
                let signal = Signal::PidAvailable;
                threshold.is_met(&crate::reading::Reading {
                    signal,
                    available,
                    capacity,
                })
            };
            assert!(met(levels.high.into()), "{capacity}: at the level");
            assert!(!met(u64::from(levels.high) - 1), "{capacity}: one under it");
        }
    }
}
