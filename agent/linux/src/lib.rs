//! Observes the machine: eBPF programs, notifications of the kernel, files, logind and the
//! container runtime. Reads bytes and returns values; what follows from them is decided in
//! nodepulse-core.

// Events of the kernel.
pub mod kernel;
pub mod os;

// Files.
pub mod certificate_store;
pub mod host;
pub mod state;

// Services of the machine.
pub mod cri;
pub mod logind;
