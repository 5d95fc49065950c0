//! What every part that performs I/O needs. Nothing here knows what nodepulse observes or reports.

// Time.
pub mod budget;
pub mod clock;

// Descriptors, threads and tasks.
pub mod fd;
pub mod lane;
pub mod tasks;

// Files and the network.
pub mod file;
pub mod http2;
pub mod names;
