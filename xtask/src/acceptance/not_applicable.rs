//! The lines without a test.

/// A line that does not apply to this agent, or that cannot be tested here.
pub struct NotApplicable {
    pub number: u16,
    pub words: &'static str,
    /// Why, or what would be needed.
    pub reason: &'static str,
}

/// By number.
pub const NOT_APPLICABLE: &[NotApplicable] = &[NotApplicable {
    number: 57,
    words: "At most 50 images with 5 names each, largest first, in a stable order.",
    reason: "there is no container runtime client, so no images are known",
}];
