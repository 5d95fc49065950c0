//! EDGE: reports what the agent does, in metrics and in the log. Decides nothing.

#![forbid(unsafe_code)]

pub mod decisions;
pub mod metering;
