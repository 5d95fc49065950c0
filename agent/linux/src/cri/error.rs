//! The reasons why the container runtime did not answer.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// The reason why there is no answer. Text of the runtime is escaped.
#[derive(Debug, thiserror::Error)]
pub enum CriError {
    #[error(
        "there is no container runtime at {}; start it, or set runtime.endpoint to its socket",
        paths(.0)
    )]
    NoSocket(Vec<PathBuf>),

    /// A socket exists, but does not accept the connection.
    #[error(
        "cannot connect to the container runtime at {}: {source}; {}", .socket.display(), cure(source)
    )]
    Connect { socket: PathBuf, source: io::Error },

    #[error(
        "no answer to {call} within {}s; check the container runtime with crictl info", .limit.as_secs()
    )]
    NoAnswer { call: &'static str, limit: Duration },

    /// The connection ended, or did not use HTTP/2.
    #[error(
        "{call}: the connection failed: {source}; set runtime.endpoint to a socket of a CRI runtime"
    )]
    Connection {
        call: &'static str,
        source: hyper::Error,
    },

    /// The service uses HTTP/2, but not gRPC.
    #[error(
        "{call}: the answer is not gRPC: {why}; set runtime.endpoint to a socket of a CRI runtime"
    )]
    NotGrpc { call: &'static str, why: String },

    #[error(
        "{call}: the runtime does not implement CRI v1: {message}; enable its CRI plugin, or update it \
         (containerd 1.6, CRI-O 1.20)"
    )]
    Unimplemented { call: &'static str, message: String },

    #[error("{call}: the runtime answered with gRPC status {status}: {message}; see its log")]
    Refused {
        call: &'static str,
        status: u32,
        message: String,
    },

    /// The answer is larger than the agent reads.
    #[error("{call}: the answer has {size} bytes, more than {limit}")]
    TooLarge {
        call: &'static str,
        /// Size as announced, or of one part as received so far.
        size: usize,
        limit: usize,
    },

    #[error("{call}: the answer cannot be decoded: {source}")]
    Undecodable {
        call: &'static str,
        source: prost::DecodeError,
    },
}

impl CriError {
    /// Returns `true` if no runtime listens at the socket: it does not exist, or was left behind.
    pub(super) fn is_absent(&self) -> bool {
        let Self::Connect { source, .. } = self else {
            return false;
        };
        matches!(
            source.kind(),
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
        )
    }

    /// Returns `true` if the connection must be closed. After an error of gRPC it can be used.
    pub(super) const fn ends_connection(&self) -> bool {
        !matches!(self, Self::Refused { .. } | Self::Unimplemented { .. })
    }
}

/// Returns the remedy. The sandbox is the agent's: it permits the directories of sockets that exist
/// at its start.
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
