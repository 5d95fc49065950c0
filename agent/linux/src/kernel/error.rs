//! Errors of the programs' maps.

/// A map is not what this build expects, or the kernel refuses access to it.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// The object and the agent do not match.
    #[error("the eBPF object has no map {0}; build the agent and the object from one tree")]
    NoMap(&'static str),
    /// A map could not be read or written.
    #[error("cannot use the eBPF map {name}")]
    Map {
        /// Its name.
        name: &'static str,
        /// The kernel's error.
        #[source]
        source: aya::maps::MapError,
    },
    /// All slots for disks are in use.
    #[error("no more than {0} disks can be watched")]
    Full(u32),
}
