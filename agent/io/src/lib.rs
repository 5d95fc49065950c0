//! The foundations of every part that performs I/O, independent of what nodepulse observes.

// Time.
pub mod budget;
pub mod clock;

// Descriptors, threads and tasks.
pub mod fd;
pub mod lane;
pub mod tasks;

// Files and the network.
pub mod control_socket;
pub mod file;
pub mod http2;
pub mod names;
