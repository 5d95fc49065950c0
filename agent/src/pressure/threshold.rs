//! The kubelet's threshold grammar and arithmetic.

/// The value of a threshold: a quantity or a share of the capacity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ThresholdValue {
    /// In the signal's unit.
    Quantity(u64),
    /// Of the capacity, 0 to 1, in the kubelet's 32-bit arithmetic.
    Share(f32),
}
