//! The decisions of nodepulse: from records of the kernel and readings of files to conditions,
//! Events and explanations. Nothing here performs I/O, reads a clock or waits; time is a parameter.

#![forbid(unsafe_code)]

/// The domain of nodepulse. Defined before the modules, so that they can use it.
#[macro_export]
macro_rules! domain {
    () => {
        "nodepulse.dev"
    };
}

// Vocabulary.
pub mod backoff;
pub mod checked_line;
pub mod clock;
pub mod escape;
pub mod kill_annotation;
pub mod object_name;
mod pairs;
pub mod reading;
pub mod settings;
pub mod units;

// From the kernel's record to the decision.
pub mod black_box;
pub mod client_certificate;
pub mod incident;
pub mod kube_event;
pub mod node_status;
pub mod pods;
pub mod pressure;
pub mod record;
pub mod subjects;

// For operators.
pub mod explanation;

#[cfg(test)]
mod tests;
