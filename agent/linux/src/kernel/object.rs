//! The embedded eBPF object.

/// Returns the object, aligned for an ELF parser; `None` if built with the feature `without-ebpf`.
pub fn embedded() -> Option<&'static [u8]> {
    #[cfg(feature = "without-ebpf")]
    return None;
    #[cfg(not(feature = "without-ebpf"))]
    Some(aya::include_bytes_aligned!(env!("NODEPULSE_EBPF_OBJECT")))
}
