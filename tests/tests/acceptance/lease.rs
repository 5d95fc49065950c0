//! Proof of life.
