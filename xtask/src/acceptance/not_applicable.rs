//! The lines without a test.

/// A line that does not apply to this agent, or that cannot be tested here.
pub struct NotApplicable {
    pub number: u16,
    pub words: &'static str,
    /// Why, or what would be needed.
    pub reason: &'static str,
}

/// By number.
pub const NOT_APPLICABLE: &[NotApplicable] = &[];
