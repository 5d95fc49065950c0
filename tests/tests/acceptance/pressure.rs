//! Thresholds, and what crossing one does.
