//! Why the container runtime did not answer.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why there is no answer. Text of the runtime is escaped.
#[derive(Debug, thiserror::Error)]
pub enum CriError {
    /// No socket exists.
    #[error(
        "there is no container runtime at {}; start it, or set runtime.endpoint to its socket",
        paths(.0)
    )]
    NoSocket(Vec<PathBuf>),

    /// A socket exists, but does not accept the connection.
    #[error(
        "cannot connect to the container runtime at {}: {source}; {}", .socket.display(), cure(source)
    )]
    Connect {
        /// Which socket.
        socket: PathBuf,
        /// The error of the kernel.
        source: io::Error,
    },

    /// Not within the limit.
    #[error(
        "no answer to {call} within {}s; check the container runtime with crictl info", .limit.as_secs()
    )]
    NoAnswer {
        /// The CRI call.
        call: &'static str,
        /// Its time limit.
        limit: Duration,
    },

    /// The connection ended, or was none of HTTP/2.
    #[error(
        "{call}: the connection failed: {source}; set runtime.endpoint to a socket of a CRI runtime"
    )]
    Connection {
        /// The CRI call.
        call: &'static str,
        /// The error of the connection.
        source: hyper::Error,
    },

    /// It speaks HTTP/2, but not gRPC.
    #[error(
        "{call}: the answer is not gRPC: {why}; set runtime.endpoint to a socket of a CRI runtime"
    )]
    NotGrpc {
        /// The CRI call.
        call: &'static str,
        /// What is wrong with the answer.
        why: String,
    },

    /// The runtime does not implement the call.
    #[error(
        "{call}: the runtime does not implement CRI v1: {message}; enable its CRI plugin, or update it \
         (containerd 1.6, CRI-O 1.20)"
    )]
    Unimplemented {
        /// The CRI call.
        call: &'static str,
        /// The runtime's message.
        message: String,
    },

    /// The runtime answered with an error.
    #[error("{call}: the runtime answered with gRPC status {status}: {message}; see its log")]
    Refused {
        /// The CRI call.
        call: &'static str,
        /// The gRPC status code.
        status: u32,
        /// The runtime's message.
        message: String,
    },

    /// The answer has a size that the agent does not read.
    #[error("{call}: the answer has {size} bytes, more than {limit}")]
    TooLarge {
        /// The CRI call.
        call: &'static str,
        /// As announced, or of one part as received so far.
        size: usize,
        /// Maximum.
        limit: usize,
    },

    /// The answer is not the message of the call.
    #[error("{call}: the answer cannot be decoded: {source}")]
    Undecodable {
        /// The CRI call.
        call: &'static str,
        /// What is wrong with it.
        source: prost::DecodeError,
    },
}

impl CriError {
    /// Whether no runtime listens at the socket: it does not exist, or was left behind.
    pub(super) fn is_absent(&self) -> bool {
        let Self::Connect { source, .. } = self else {
            return false;
        };
        matches!(
            source.kind(),
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
        )
    }

    /// Whether the connection must be closed. After an error of gRPC it can be used.
    pub(super) const fn ends_connection(&self) -> bool {
        !matches!(self, Self::Refused { .. } | Self::Unimplemented { .. })
    }
}

/// The sandbox is the agent's: it permits the directories of sockets that exist at its start.
fn cure(err: &io::Error) -> &'static str {
    match err.kind() {
        io::ErrorKind::PermissionDenied => {
            "restart nodepulse if that directory is newer than its start, or permit its user to connect"
        }
        _ => "start it, or set runtime.endpoint to its socket",
    }
}

fn paths(sockets: &[PathBuf]) -> String {
    let paths = sockets.iter().map(|socket| socket.display().to_string());
    paths.collect::<Vec<_>>().join(" or ")
}
