//! Kubernetes quantities: parse, compare by value, print canonically.

/// A Kubernetes quantity. Equality is by value, not by spelling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Quantity;
