//! The foundations of every part that performs I/O. They are independent of the observations and
//! reports of nodepulse.

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
