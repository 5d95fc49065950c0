//! The operations on certificates, their results, and the notices.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::client_certificate::{Certificate, Problem};

/// The key of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RequestKey {
    /// The one of a request that has no certificate yet, if there is one: it may have been created
    /// before a restart, or its answer may be lost.
    Pending,
    New,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Requester {
    /// The node, with the certificate in use.
    Node,
    /// The user of the bootstrap kubeconfig.
    Bootstrap,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pair {
    /// Issued to this agent, and not the current pair yet.
    Issued,
    /// The current pair in the directory, which another program replaced.
    Current,
    /// The one that the agent uses, from memory.
    InUse,
}

/// An operation that takes time. One is under way at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CertificateOperation {
    /// Create a request; if it has a certificate already, store that.
    Request(RequestKey, Requester),
    /// Read the request; if it has a certificate, store that.
    Poll(Requester),
    /// Read the Node with this pair.
    Try(Pair),
    /// Make this pair the current one, and use it for new connections.
    Use(Pair),
    Read,
    /// Read the current pair, and find out whether the server answers.
    Probe,
}

/// The result of a request, or of reading it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Requested {
    /// The certificate is stored as [`Pair::Issued`].
    Stored(Certificate),
    /// The request of this name is neither approved nor denied yet, or not signed yet.
    Pending(String),
    /// It was denied, or cannot be signed, for this reason.
    Denied(String),
    /// It does not exist any more.
    Deleted,
    /// Another client has created a request of its name for another node or key.
    Foreign,
    /// Its certificate cannot be used.
    Unusable(Problem),
    /// The key or the certificate cannot be written.
    NotStored(String),
    /// The server answered with an error, or the bootstrap kubeconfig cannot be used.
    Refused(String),
    Unanswered(String),
}

/// The result of [`CertificateOperation::Try`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Attempt {
    /// The server knows the user of the certificate, whatever it permits.
    Accepted,
    /// 401, or the server treats the user as anonymous.
    Rejected,
    Unreadable(String),
    /// There was no answer, or one that does not depend on the user.
    Unknown(String),
}

/// The result of [`CertificateOperation::Use`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Usage {
    /// New connections use the pair.
    Used,
    /// It cannot be made the current pair.
    NotStored(String),
    NotRead,
}

/// An input of [`Rotation`](super::Rotation).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum CertificateInput {
    Tick,
    /// The current pair may have changed.
    FilesChanged,
    /// The server began (true) or ceased to reject requests with 401.
    Rejected(bool),
    /// The result of [`CertificateOperation::Request`] or [`CertificateOperation::Poll`].
    Requested(Requested),
    /// The result of [`CertificateOperation::Try`].
    Tried(Attempt),
    /// The result of [`CertificateOperation::Use`].
    Used(Usage),
    /// The result of [`CertificateOperation::Read`].
    Read(Result<Certificate, Problem>),
    /// The result of [`CertificateOperation::Probe`].
    Probed {
        found: Result<Certificate, Problem>,
        /// Whether the server answers.
        answers: bool,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum CertificateNotice {
    /// This certificate is used from now on.
    InUse(Certificate),
    /// The request of this name waits for its approval.
    Pending(String),
    StillPending(String),
    Denied(String),
    Foreign,
    IssuedUnusable(Problem),
    StoredUnusable(Problem),
    /// See [`Requested::NotStored`] and [`Usage::NotStored`].
    NotStored(String),
    /// See [`Requested::Refused`] and [`Requested::Unanswered`].
    NotRequested(String),
    /// See [`Attempt::Unreadable`] and [`Attempt::Unknown`].
    NotTried(String),
    /// The server rejects this pair with 401.
    PairRejected(Pair),
    /// The server rejects the certificate in use with 401; another one is requested with the
    /// bootstrap kubeconfig.
    InUseRejected,
    ExpiredUnanswered,
    /// This certificate was past its rotation point when it was issued; its successor is requested
    /// after this delay.
    IssuedPastRotation(Certificate, Duration),
}
