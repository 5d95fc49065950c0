//! The lines that no test stands for.

/// A line that this agent does not keep, or that cannot be tried here.
pub struct NotOurs {
    pub number: u16,
    pub words: &'static str,
    /// Whose it is, or what would be needed.
    pub reason: &'static str,
}

/// By number.
pub const NOT_OURS: &[NotOurs] = &[
    NotOurs {
        number: 57,
        words: "At most 50 images with 5 names each, largest first, in a stable order.",
        reason: "no container runtime is asked, so no images are known",
    },
    NotOurs {
        number: 94,
        words: "A shutdown that logind announces makes Ready False within 1 s, and back.",
        reason: "logind is not listened to: nobody tells the agent of a shutdown",
    },
    NotOurs {
        number: 97,
        words: "READY=1 once, and WATCHDOG=1 every half period, to systemd's socket.",
        reason: "no notify socket is spoken to: the unit is one that just runs",
    },
];
