//! The rejected words with their replacements, the exceptions with their reasons, and the paths that
//! are not checked.

use super::{Allowed, Rejected};
use Place::{Anywhere, Name, Prose, Type};

/// The places in which a word is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In names and in prose.
    Anywhere,
    /// In names of files, types, functions, variables. In a sentence it is standard English.
    Name,
    /// In names of types and variants only: as a part of a sentence-like name it is standard English.
    Type,
    /// In comments, string literals and documents.
    Prose,
}

const fn reject(words: &'static [&'static str], place: Place, instead: &'static str) -> Rejected {
    Rejected {
        words,
        place,
        instead,
    }
}

/// Each entry is a list of words or of phrases, in lower case.
pub const REJECTED: &[Rejected] = &[
    reject(
        &["tell", "tells", "telling", "told", "untold"],
        Anywhere,
        "report, log, record, send, print or set",
    ),
    reject(
        &["say", "says", "saying", "said"],
        Anywhere,
        "report, log, record, send, print or set; contain; mean",
    ),
    reject(
        &["look", "looks", "looked", "looking"],
        Anywhere,
        "sample (of signals), read, check, search",
    ),
    reject(
        &["hold", "holds", "held", "holding"],
        Anywhere,
        "keep, be in effect, apply, contain; of a condition: is True, is kept True",
    ),
    reject(&["ours"], Anywhere, "nodepulse's, the agent's"),
    reject(
        &["own"],
        Name,
        "nodepulse (its conditions and taints), companion (the mode), self (the process)",
    ),
    reject(
        &["of its own", "of their own", "of our own", "of your own"],
        Prose,
        "separate, other; nodepulse's",
    ),
    reject(
        &["our own", "own condition", "own conditions"],
        Prose,
        "nodepulse's",
    ),
    reject(&["own taint", "own taints"], Prose, "nodepulse's"),
    reject(&["news"], Anywhere, "change, message, update"),
    reject(
        &["word", "kernel line"],
        Type,
        "message, signal, token, source",
    ),
    reject(&["eyes"], Anywhere, "source"),
    reject(&["whose"], Type, "owner"),
    reject(
        &["who", "whom"],
        Name,
        "the subject: a client, a pod, a process",
    ),
    reject(
        &[
            "whoever",
            "whomever",
            "nobody",
            "somebody",
            "anybody",
            "everybody",
        ],
        Anywhere,
        "the client, another client, no process, \"a pod that\"",
    ),
    reject(&["gone"], Type, "removed, deleted, closed, ended"),
    reject(&["graveyard"], Anywhere, "recent pods"),
    reject(&["noted"], Anywhere, "recorded"),
    reject(&["heard"], Anywhere, "received, reported"),
    reject(&["blind"], Anywhere, "unavailable, source lost"),
    reject(&["anew"], Anywhere, "again"),
    reject(&["beside"], Anywhere, "alongside, next to, with"),
    reject(
        &["doors", "outside", "outlet", "stay"],
        Type,
        "inputs, parts, run mode",
    ),
    reject(
        &["rights"],
        Anywhere,
        "permissions (RBAC), capabilities (Linux), privileges",
    ),
    reject(
        &[
            "take off",
            "takes off",
            "taking off",
            "took off",
            "taken off",
        ],
        Anywhere,
        "remove",
    ),
    reject(&["for want of"], Prose, "out of, for lack of"),
    reject(&["from outside"], Prose, "external, untrusted"),
    reject(&["on paper"], Prose, "dry run"),
];

/// Phrases in which a rejected word is the standard term.
pub const STANDARD: &[&str] = &[
    "look up",
    "looks up",
    "looked up",
    "looking up",
    "look ups",
    // Flags and lints of others.
    "holding lock",
    "scm rights",
];

const fn allow(
    path: &'static str,
    words: &'static [&'static str],
    reason: &'static str,
) -> Allowed {
    Allowed {
        path,
        words,
        reason,
    }
}

/// `path` is a file, or a folder with a slash at its end.
pub const ALLOWED: &[Allowed] = &[allow(
    "xtask/src/tidy/vocabulary.rs",
    &[
        "anew",
        "held",
        "holds",
        "gone",
        "of its own",
        "own condition",
        "own taint",
        "rights",
        "says",
        "tell",
        "told",
    ],
    "examples in its tests",
)];

/// Data and generated files: the words of generated files are checked at their source.
pub const NOT_CHECKED: &[&str] = &[
    "Cargo.lock",
    "LICENSE",
    // Text of musl.
    "deploy/packages/musl-copyright",
    "deploy/completions/",
    "deploy/man/",
    "tests/fixtures/",
    "tests/fuzz/corpus/",
    "xtask/src/tidy/vocabulary/tables.rs",
];

/// Paths that still contain rejected words. Remove an entry once its files are rewritten.
pub const NOT_CONVERTED: &[&str] = &["agent-ebpf/src/block_io.rs", "agent-ebpf/src/oom.rs"];
