//! The eBPF object that this binary carries.

/// The object, aligned as an ELF parser wants it; `None` in a binary built with the feature
/// `without-ebpf`.
#[must_use]
pub fn embedded() -> Option<&'static [u8]> {
    #[cfg(feature = "without-ebpf")]
    return None;
    #[cfg(not(feature = "without-ebpf"))]
    Some(aya::include_bytes_aligned!(env!("NODEPULSE_EBPF_OBJECT")))
}
