//! Delays between attempts, as values: waiting is left to the caller.

// Sums and products of durations panic on overflow, and these numbers are external.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A delay that doubles after each attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backoff {
    first: Duration,
    cap: Duration,
    next: Duration,
}

impl Backoff {
    /// The delays between attempts to register: 100, 200, … 6400, then 7000 ms, as in a kubelet.
    pub const REGISTRATION: Self = Self::new(Duration::from_millis(100), Duration::from_secs(7));
    /// The delays between attempts to watch: 0.8, 1.6, … 25.6, then 30 s, as in other clients.
    pub const WATCH: Self = Self::new(Duration::from_millis(800), Duration::from_secs(30));
    /// The delays between attempts to read or create the lease: 200, 400, … 6400, then 7000 ms, as
    /// in a kubelet.
    pub const LEASE: Self = Self::new(Duration::from_millis(200), Duration::from_secs(7));

    /// The delay starts at `first` and never exceeds `cap`.
    pub const fn new(first: Duration, cap: Duration) -> Self {
        Self {
            first,
            cap,
            next: first,
        }
    }

    /// Returns the delay before the next attempt, and doubles the one after it.
    pub fn advance(&mut self) -> Duration {
        let delay = self.next.min(self.cap);
        self.next = delay.saturating_mul(2);
        delay
    }

    pub const fn reset(&mut self) {
        self.next = self.first;
    }
}

/// A source of randomness: xorshift, because spreading requests in time needs no secrecy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Jitter(u64);

impl Jitter {
    /// Creates a separate sequence for each seed, even for similar ones. Seed 0 results in
    /// [`Jitter::NONE`].
    pub const fn seeded(seed: u64) -> Self {
        // The golden ratio, odd: different seeds stay different, and the upper bits are used at
        // once.
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    /// Always returns 0, a state that xorshift never leaves. For tests and simulations.
    pub const NONE: Self = Self(0);

    /// Returns a number from 0 up to, but not including, 1.
    pub fn fraction(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        // The upper half has better quality, and fits a float without loss.
        f64::from(u32::try_from(self.0 >> 32).unwrap_or(0)) / 4_294_967_296.0
    }

    #[must_use]
    pub fn fork(&mut self) -> Self {
        self.fraction();
        // Odd, as in `seeded`, so that only 0 becomes 0.
        Self(self.0.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    /// Extends `period` by up to `share` of it, limited to the longest duration.
    pub fn stretch(&mut self, period: Duration, share: f64) -> Duration {
        period.saturating_add(multiplied(period, share * self.fraction()))
    }

    /// Returns a random part of `period`, less than all of it.
    pub fn part(&mut self, period: Duration) -> Duration {
        multiplied(period, self.fraction())
    }
}

/// Multiplies `period` by `factor`. This is the only place that multiplies a duration by a
/// fraction, because `Duration::mul_f64` panics if the product does not fit. Here the result is
/// then the longest duration, and a negative or invalid factor results in zero.
fn multiplied(period: Duration, factor: f64) -> Duration {
    let seconds = period.as_secs_f64() * factor;
    Duration::try_from_secs_f64(seconds).unwrap_or(if seconds > 0.0 {
        Duration::MAX
    } else {
        Duration::ZERO
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_and_then_stay_at_the_cap() {
        #[rustfmt::skip]
        let rows: [(&str, Backoff, &[u64]); 2] = [
            ("registration", Backoff::REGISTRATION, &[100, 200, 400, 800, 1600, 3200, 6400, 7000, 7000]),
            ("lease", Backoff::LEASE, &[200, 400, 800, 1600, 3200, 6400, 7000, 7000]),
        ];
        for (name, mut backoff, expected) in rows {
            let got: Vec<_> = expected.iter().map(|_| backoff.advance()).collect();
            let expected: Vec<_> = expected
                .iter()
                .map(|ms| Duration::from_millis(*ms))
                .collect();
            assert_eq!(got, expected, "{name}");
            backoff.reset();
            assert_eq!(backoff.advance(), expected[0], "{name} after a reset");
        }
    }

    #[test]
    fn no_period_is_too_long_to_be_stretched() {
        for seed in 1..=20 {
            let mut jitter = Jitter::seeded(seed);
            let stretched = jitter.stretch(Duration::MAX, 0.5);
            assert_eq!(stretched, Duration::MAX, "seed {seed}");
        }
        let second = Duration::from_secs(1);
        let rows = [
            (0.5, Duration::from_millis(500)),
            (-0.5, Duration::ZERO),
            (f64::NAN, Duration::ZERO),
            (f64::INFINITY, Duration::MAX),
        ];
        for (factor, expected) in rows {
            assert_eq!(multiplied(second, factor), expected, "{factor}");
        }
    }

    #[test]
    fn jitter_stays_within_its_share_and_differs_by_seed() {
        let period = Duration::from_secs(10);
        let mut firsts = std::collections::BTreeSet::new();
        for seed in 1..=200 {
            let mut jitter = Jitter::seeded(seed);
            firsts.insert(jitter.stretch(period, 0.04));
            for _ in 0..50 {
                let got = jitter.stretch(period, 0.04);
                assert!(period <= got && got < period * 26 / 25, "{got:?}");
            }
        }
        assert!(firsts.len() > 190, "{}", firsts.len());
        assert_eq!(Jitter::NONE.clone().stretch(period, 0.04), period);
    }
}
