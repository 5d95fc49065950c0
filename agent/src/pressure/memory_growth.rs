//! Whether a cgroup that reaches its memory limit again and again will soon be killed in.
//!
//! A limit is reached by page cache too, which costs nothing: the kernel drops it. Only memory that it
//! cannot drop counts, and only if it grows, to more than it was in the last hour. So neither a heap
//! that fills a fixed size, nor one that a garbage collector empties from time to time, is reported.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::BootNanos;
use crate::reading::memory_limit::LimitedMemory;
use crate::units::Bytes;

/// Interval of samples while the memory grows, and the shortest pause otherwise.
pub const INTERVAL: Duration = Duration::from_secs(10);
/// Longest pause while the limit is reached and nothing is to be reported.
pub const LONGEST_PAUSE: Duration = Duration::from_mins(5);
/// The same while little of the memory can be reclaimed, so that growth is noticed in time.
const LONGEST_PAUSE_NEARLY_FULL: Duration = Duration::from_mins(1);
/// Samples that are compared: those of a minute.
const MOST_SAMPLES: usize = 7;
/// Samples without which nothing is reported: those of half a minute.
const LEAST_SAMPLES: usize = 4;
/// Intervals in which the limit must have been reached, and in which the memory must have grown.
const LEAST_INTERVALS: usize = 3;
/// Samples with a longer interval are not compared: the machine was suspended, or there was a pause.
const LONGEST_INTERVAL: Duration = Duration::from_secs(15);
/// A kill that is farther ahead is not reported.
const FORESEEN: Duration = Duration::from_mins(5);
/// Neither is one that is nearer: nothing can be done in that time, and the heap of a garbage collector
/// grows that fast.
const LEAST_TIME_LEFT: Duration = Duration::from_secs(20);
/// How many times as far ahead as back is extrapolated.
const EXTRAPOLATION: u32 = 5;
/// Shortest time for which the largest size is remembered, and minimum interval of reports unless the
/// memory falls in between.
const REMEMBERED: Duration = Duration::from_hours(1);

/// The memory of one cgroup that reaches its limit.
#[derive(Debug, Clone)]
pub struct MemoryGrowth {
    /// Samples at regular intervals without a fall, the oldest first.
    window: VecDeque<(BootNanos, LimitedMemory)>,
    peak: Peak,
    pause: Duration,
    reported: Option<BootNanos>,
}

/// The largest anonymous memory before the window: in this hour, and in the one before.
#[derive(Debug, Clone, Copy)]
struct Peak {
    since: BootNanos,
    now: Bytes,
    before: Bytes,
}

/// What is to be done next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextStep {
    /// Report this, and sample again after half of the time left.
    Report(Forecast),
    /// Sample again after this time.
    Sample(Duration),
    /// It has not reached its limit any more; sample when it does again.
    Wait,
}

/// A kill that is to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forecast {
    /// The present memory.
    pub memory: LimitedMemory,
    /// By how much its anonymous and shared memory grew.
    pub grown: Bytes,
    /// In which time.
    pub within: Duration,
    /// Time until the kill at this rate.
    pub left: Duration,
}

impl Default for MemoryGrowth {
    fn default() -> Self {
        Self {
            window: VecDeque::new(),
            peak: Peak::NONE,
            pause: INTERVAL,
            reported: None,
        }
    }
}

impl MemoryGrowth {
    /// Takes a sample.
    pub fn on(&mut self, at: BootNanos, memory: LimitedMemory) -> NextStep {
        let last = self.window.back().copied();
        if last.is_some_and(|(_, last)| last.limit != memory.limit) {
            *self = Self::default();
        }
        self.peak.age(at);
        if last.is_some_and(|(when, last)| {
            LONGEST_INTERVAL < at.since(when) || has_fallen(&last, &memory)
        }) {
            self.forget(usize::MAX);
        }
        self.window.push_back((at, memory));
        self.forget(self.window.len().saturating_sub(MOST_SAMPLES));
        let is_over = |when| REMEMBERED <= at.since(when);
        if !is_nearly_full(&memory) || self.reported.is_some_and(is_over) {
            self.reported = None;
        }
        if self.reported.is_none()
            && let Some(forecast) = self.forecast()
        {
            self.reported = Some(at);
            return NextStep::Report(forecast);
        }
        self.next(last, at, &memory)
    }

    /// The cgroup was reported together with another one.
    pub const fn reported_with_another(&mut self, at: BootNanos) {
        self.reported = Some(at);
    }

    /// The limit was not reached for a long time: pauses are short again.
    pub const fn was_calm(&mut self) {
        self.pause = INTERVAL;
    }

    /// Forgets the oldest `count` samples except for the largest size in them.
    fn forget(&mut self, count: usize) {
        for (_, memory) in self.window.drain(..count.min(self.window.len())) {
            self.peak.now = self.peak.now.max(memory.anonymous());
        }
    }

    /// When to sample again if nothing is reported.
    fn next(
        &mut self,
        last: Option<(BootNanos, LimitedMemory)>,
        at: BootNanos,
        memory: &LimitedMemory,
    ) -> NextStep {
        let is_new = self.window.len() < LEAST_SAMPLES;
        let has_hit = last.is_none_or(|(_, last)| last.hits < memory.hits);
        let is_compared = is_nearly_full(memory) && self.window.len() > 1;
        if !has_hit && !(is_compared && (is_new || self.hits() > 0)) {
            return NextStep::Wait;
        }
        let can_be_reported = self.reported.is_none() && is_nearly_full(memory);
        if can_be_reported {
            let grew = last.is_none_or(|(_, last)| last.anonymous() < memory.anonymous());
            let soon = self.time_left().is_some_and(|left| left <= FORESEEN * 2);
            if soon || (is_new && grew) {
                return NextStep::Sample(INTERVAL);
            }
        }
        let pause = self.pause;
        self.pause = LONGEST_PAUSE.min(pause.saturating_mul(2));
        let pause = if can_be_reported {
            pause.min(LONGEST_PAUSE_NEARLY_FULL)
        } else {
            pause
        };
        let until = last.and_then(|last| time_until_nearly_full(last, (at, *memory)));
        let half = until.map_or(pause, |until| until / 2);
        NextStep::Sample(pause.min(half).max(INTERVAL))
    }

    /// Intervals in which the limit was reached.
    fn hits(&self) -> usize {
        self.intervals(|a, b| a.hits < b.hits)
    }

    fn intervals(&self, counts: impl Fn(&LimitedMemory, &LimitedMemory) -> bool) -> usize {
        let next = self.window.iter().skip(1);
        let pairs = self.window.iter().zip(next);
        pairs.filter(|((_, a), (_, b))| counts(a, b)).count()
    }

    /// By how much the anonymous memory exceeds its size at the start of the window and before, and in
    /// which time.
    fn growth(&self) -> Option<(Bytes, Duration)> {
        let ((first_at, first), (last_at, last)) = (self.window.front()?, self.window.back()?);
        let before = self.peak.now.max(self.peak.before);
        let grown = less(last.anonymous(), first.anonymous().max(before));
        Some((grown, last_at.since(*first_at)))
    }

    /// Time until the limit, by the slower of the growth in the whole window and in its last half.
    fn time_left(&self) -> Option<Duration> {
        let (grown, within) = self.growth()?;
        let (_, second) = self.halves()?;
        let (_, memory) = self.window.back()?;
        let rate = per_second(grown, within).min(second);
        time_for(memory.room(), rate)
    }

    /// The growth per second in the first and in the last half of the window.
    fn halves(&self) -> Option<(u64, u64)> {
        let last = self.window.len().checked_sub(1)?;
        let half = (last / 2).max(1);
        let rate = |from: usize, to: usize| {
            let ((from_at, from), (to_at, to)) = (self.window.get(from)?, self.window.get(to)?);
            let grown = less(to.anonymous(), from.anonymous());
            Some(per_second(grown, to_at.since(*from_at)))
        };
        Some((rate(0, half)?, rate(last.checked_sub(half)?, last)?))
    }

    fn forecast(&self) -> Option<Forecast> {
        let (_, memory) = *self.window.back()?;
        let growing = self.intervals(|a, b| a.anonymous() < b.anonymous());
        if self.window.len() < LEAST_SAMPLES
            || self.hits() < LEAST_INTERVALS
            || growing < LEAST_INTERVALS
            || !is_almost_full(&memory)
        {
            return None;
        }
        let (grown, within) = self.growth()?;
        // Less is noise, such as pages that are charged in batches.
        if grown.get() < memory.limit.get() / 1024 {
            return None;
        }
        let left = self.time_left()?;
        let foreseen = FORESEEN.min(within.saturating_mul(EXTRAPOLATION));
        let forecast = Forecast {
            memory,
            grown,
            within,
            left,
        };
        let is_near = LEAST_TIME_LEFT <= left && left <= foreseen;
        (is_near && !self.will_stop(memory.room(), within)?).then_some(forecast)
    }

    /// Whether the growth slows down so much that it ends before the limit. If it falls from `first` to
    /// `second` in a time, as an exponential decay does, what is still to come is the integral of that.
    fn will_stop(&self, room: Bytes, within: Duration) -> Option<bool> {
        let (first, second) = self.halves()?;
        let slower = first.saturating_sub(second);
        if slower == 0 {
            return Some(false);
        }
        let [first, second, slower] = [first, second, slower].map(u128::from);
        // Milliseconds between the middles of the halves.
        let intervals = self.window.len().checked_sub(1)?;
        let between = intervals.checked_sub((intervals / 2).max(1))?;
        let between = within
            .as_millis()
            .saturating_mul(u128::try_from(between).ok()?);
        let apart = between.checked_div(u128::try_from(intervals).ok()?)?;
        let sum = first.saturating_add(second);
        let product = second.saturating_mul(apart).saturating_mul(sum);
        let to_come = product.checked_div(slower.saturating_mul(2000))?;
        Some(to_come < u128::from(room.get()))
    }
}

impl Forecast {
    /// When to sample again, so that the largest size is known even if no kill follows.
    pub fn pause(&self) -> Duration {
        (self.left / 2).clamp(INTERVAL, LONGEST_PAUSE)
    }
}

impl Peak {
    const NONE: Self = Self {
        since: BootNanos(0),
        now: Bytes::from_bytes(0),
        before: Bytes::from_bytes(0),
    };

    fn age(&mut self, at: BootNanos) {
        if REMEMBERED <= at.since(self.since) {
            *self = Self {
                since: at,
                now: Bytes::default(),
                before: self.now,
            };
        }
    }
}

/// At least three quarters of the limit cannot be reclaimed, and most of that is anonymous memory.
fn is_nearly_full(memory: &LimitedMemory) -> bool {
    is_full(memory, 4)
}

/// Nine tenths. Heaps of a fixed size are usually made smaller than that.
fn is_almost_full(memory: &LimitedMemory) -> bool {
    is_full(memory, 10)
}

fn is_full(memory: &LimitedMemory, parts: u64) -> bool {
    let limit = memory.limit.get();
    memory.room().get() <= limit / parts && limit / 2 <= memory.anonymous().get()
}

/// A change of less than this is noise.
fn has_fallen(last: &LimitedMemory, memory: &LimitedMemory) -> bool {
    memory.limit.get() / 128 < less(last.anonymous(), memory.anonymous()).get()
}

/// At the rate of growth between two samples. `None`: it does not grow.
fn time_until_nearly_full(
    (last_at, last): (BootNanos, LimitedMemory),
    (at, memory): (BootNanos, LimitedMemory),
) -> Option<Duration> {
    let grown = less(memory.anonymous(), last.anonymous());
    let rate = per_second(grown, at.since(last_at));
    let kept = if is_nearly_full(&memory) {
        0
    } else {
        memory.limit.get() / 4
    };
    time_for(less(memory.room(), Bytes::from_bytes(kept)), rate)
}

const fn less(a: Bytes, b: Bytes) -> Bytes {
    Bytes::from_bytes(a.get().saturating_sub(b.get()))
}

fn per_second(grown: Bytes, within: Duration) -> u64 {
    let grown = u128::from(grown.get()).saturating_mul(1000);
    let rate = grown.checked_div(within.as_millis()).unwrap_or_default();
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// `None`: never.
fn time_for(bytes: Bytes, per_second: u64) -> Option<Duration> {
    bytes.get().checked_div(per_second).map(Duration::from_secs)
}

#[cfg(test)]
mod tests;
