//! Errors of the programs' maps.

use aya::maps::MapError;

/// A map is not what this build expects, or the kernel refuses access to it.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    #[error("the eBPF object has no map {0}; build the agent and the object from one tree")]
    NoMap(&'static str),
    #[error("cannot use the eBPF map {name}")]
    Map {
        name: &'static str,
        #[source]
        source: MapError,
    },
    #[error("no more than {0} disks can be watched")]
    Full(u32),
}

impl KernelError {
    /// Converts the errors of the map `name`.
    pub(super) fn of_map(name: &'static str) -> impl FnOnce(MapError) -> Self {
        move |source| Self::Map { name, source }
    }
}
