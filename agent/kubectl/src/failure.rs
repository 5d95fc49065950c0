//! Failures: one line each, with what can be done.

use std::io;

use nodepulse_core::escape::{self, escape};

#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// No process reads the output any more.
    #[error("the output is closed")]
    BrokenPipe,
    #[error("cannot write the output: {0}")]
    Output(io::Error),
    #[error("cannot run kubectl, which must be in PATH: {0}")]
    Kubectl(io::Error),
    /// A thread cannot be started, or there is no memory.
    #[error("cannot start: {0}")]
    Runtime(io::Error),
    /// An argument that clap cannot check.
    #[error("{0}")]
    Usage(String),
    /// There is no kubeconfig, or it or the proxy cannot be used.
    #[error("{0}")]
    Kubeconfig(String),
    #[error("cannot reach the API server {server}: {why}")]
    Unreachable { server: String, why: String },
    #[error(
        "the API server {server} rejects the credentials of the kubeconfig (401 Unauthorized): log in again"
    )]
    Unauthorized { server: String },
    #[error(
        "{user} may not {verb} {resource} {place}; grant it with the rule {{apiGroups: [\"{group}\"], \
         resources: [{resource}], verbs: [{verb}]}} (docs/kubectl.md has a ClusterRole for readers)"
    )]
    Forbidden {
        user: String,
        verb: &'static str,
        resource: &'static str,
        group: &'static str,
        place: String,
    },
    #[error("{what} not found")]
    NotFound { what: String },
    /// A list or a watch has expired (410).
    #[error("the list of {resource} expired repeatedly while it was read: try again")]
    Expired { resource: &'static str },
    /// Any other HTTP status.
    #[error("cannot {verb} {resource}: {code} {message}")]
    Refused {
        verb: &'static str,
        resource: &'static str,
        code: u16,
        message: String,
    },
    #[error("pod {pod} does not report its tier: {why}")]
    NoTier { pod: String, why: String },
    #[error("pod {pod} does not report its tier: no answer within {seconds} s")]
    TierTimeout { pod: String, seconds: u64 },
    /// The answer is not what an API server sends.
    #[error("cannot {verb} {resource}: {why}")]
    Garbled {
        verb: &'static str,
        resource: &'static str,
        why: String,
    },
}

impl Failure {
    /// Returns 2 for wrong usage, otherwise 1.
    pub const fn exit_status(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            _ => 1,
        }
    }

    pub const fn is_forbidden(&self) -> bool {
        matches!(self, Self::Forbidden { .. })
    }

    pub const fn is_temporary(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::Refused { code, .. } => *code == 429 || *code >= 500,
            _ => false,
        }
    }

    pub const fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }
}

/// Returns an error and its causes in one line, without repetitions.
pub fn chain(err: &(dyn std::error::Error + 'static)) -> String {
    let mut text = one_line(&err.to_string());
    let mut cause = err.source();
    while let Some(err) = cause {
        let next = one_line(&err.to_string());
        if !text.contains(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        cause = err.source();
    }
    text
}

/// Escapes external text, in one line.
pub fn one_line(text: &str) -> String {
    escape(escape::one_line(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_away_or_fails_is_temporary_and_a_refusal_is_not() {
        let refused = |code| Failure::Refused {
            verb: "watch",
            resource: "nodes",
            code,
            message: String::new(),
        };
        let server = "https://api.example".to_owned();
        let away = Failure::Unreachable {
            server: server.clone(),
            why: String::new(),
        };
        assert!(away.is_temporary());
        assert!(!Failure::Unauthorized { server }.is_temporary());
        for (code, expected) in [(400, false), (429, true), (500, true), (504, true)] {
            assert_eq!(refused(code).is_temporary(), expected, "{code}");
        }
    }
}
