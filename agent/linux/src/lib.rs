//! Observes the machine: eBPF programs, kernel notifications, files, logind and the container
//! runtime. Reads bytes and returns values, from which nodepulse-core concludes.

// Events of the kernel.
pub mod kernel;
pub mod os;

// Files.
pub mod black_box;
pub mod certificate_store;
pub mod host;
pub mod state;
pub mod store;

// Services of the machine.
pub mod cri;
pub mod journal;
pub mod logind;
