//! Log lines of the probes. For debug builds only: each costs a record and a wake-up.
//!
//! Needs an object built by `cargo xtask build-ebpf --features log`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use aya::Ebpf;
use aya_log::EbpfLogger;
use nodepulse_io::fd;
use tokio::io::Interest;
use tracing::{debug, warn};

#[derive(Debug, Clone, Copy)]
pub struct TracingLogger;

impl log::Log for TracingLogger {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        debug!(probe_level = record.level().as_str(), "{}", record.args());
    }

    fn flush(&self) {}
}

/// Opens the log, if the object was built with one.
pub fn open(programs: &mut Ebpf) -> Option<EbpfLogger<TracingLogger>> {
    EbpfLogger::init_with_logger(programs, TracingLogger)
        .inspect_err(|err| {
            let err = err as &dyn std::error::Error;
            warn!(err, "the eBPF object was built without log lines");
        })
        .ok()
}

/// A log in the form that the runtime can watch.
struct Log(EbpfLogger<TracingLogger>);

impl AsFd for Log {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

// SAFETY: a logger owns its ring, and a ring keeps its descriptor from creation to drop.
unsafe impl fd::OneDescriptor for Log {}

/// Reads lines for as long as the programs are loaded.
pub async fn read(logger: EbpfLogger<TracingLogger>) -> io::Result<()> {
    let mut logger = fd::watch(Log(logger), Interest::READABLE)?;
    loop {
        logger.get_mut().0.0.flush();
        logger.readable().await?.clear_ready();
    }
}
