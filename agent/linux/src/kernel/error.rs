//! Errors of the programs' maps.

/// A map is not what this build expects, or the kernel refuses access to it.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// The object and the agent do not match.
    #[error("the eBPF object has no map {0}; build the agent and the object from one tree")]
    NoMap(&'static str),
    #[error("cannot use the eBPF map {name}")]
    Map {
        name: &'static str,
        #[source]
        source: aya::maps::MapError,
    },
    #[error("no more than {0} disks can be watched")]
    Full(u32),
}
