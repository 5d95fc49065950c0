//! The lines that no test stands for.

/// A line that this agent does not keep, or that cannot be tried here.
pub struct NotOurs {
    pub number: u16,
    pub words: &'static str,
    /// Whose it is, or what would be needed.
    pub reason: &'static str,
}

/// By number.
pub const NOT_OURS: &[NotOurs] = &[NotOurs {
    number: 57,
    words: "At most 50 images with 5 names each, largest first, in a stable order.",
    reason: "no container runtime is asked, so no images are known",
}];
