//! Computes a median and its confidence interval.

/// The distribution of many measurements.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Spread {
    pub median: f64,
    /// Lower bound of the 95 % confidence interval of the median.
    pub low: f64,
    /// Upper bound of the 95 % confidence interval of the median.
    pub high: f64,
}

impl Spread {
    /// Computes the distribution of independent measurements, in any order. NaN if there are none.
    ///
    /// The interval is between two ranks and assumes nothing of the distribution: the number of
    /// measurements below the true median is binomial, so the ranks are 0.98 √n away from the
    /// middle.
    pub fn of(mut measured: Vec<f64>) -> Self {
        measured.sort_by(f64::total_cmp);
        let count = measured.len();
        let last = count.saturating_sub(1);
        let away = isqrt_up(count * 96 / 100);
        let middle = last / 2;
        let at = |rank: usize| measured.get(rank).copied().unwrap_or(f64::NAN);
        Self {
            median: f64::midpoint(at(middle), at(count / 2)),
            low: at(middle.saturating_sub(away)),
            high: at((count / 2 + away).min(last)),
        }
    }
}

fn isqrt_up(n: usize) -> usize {
    let root = n.isqrt();
    root + usize::from(root * root < n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_a_median_is_between_ranks() {
        let upto = |n: u32| (1..=n).rev().map(f64::from).collect();
        let rows = [
            (61, 31.0, 23.0, 39.0),
            (30, 15.5, 9.0, 22.0),
            (4, 2.5, 1.0, 4.0),
            (1, 1.0, 1.0, 1.0),
        ];
        for (n, median, low, high) in rows {
            let expected = Spread { median, low, high };
            assert_eq!(Spread::of(upto(n)), expected, "{n}");
        }
        assert!(Spread::of(Vec::new()).median.is_nan());
    }
}
