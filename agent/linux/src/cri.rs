//! EDGE: the client of the container runtime, over its socket on the node (CRI, version v1).
//!
//! There is one HTTP/2 connection, which is opened again when it has ended. Every call has a time
//! limit, every answer a size limit. A runtime that exceeds the time limit, or does not speak gRPC,
//! loses its connection.

#![forbid(unsafe_code)]

use std::fmt;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::time::timeout;

use nodepulse_core::node_status::largest_images::LargestImages;
use nodepulse_core::reading::container_runtime::{NodeImage, RuntimeStatus, RuntimeVersion};

mod answers;
mod call;
mod error;
pub mod messages;

use answers::{ImageList, Whole};
use call::{Answer, Connection};
pub use error::CriError;

/// Time limit of a call other than `ListImages`, and of opening a connection. Two of them end
/// before the next check is due.
const LIMIT: Duration = Duration::from_secs(5);

pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

type Opening = Pin<Box<dyn Future<Output = io::Result<Box<dyn Io>>> + Send>>;

/// Opens a stream to the socket at a path: a UNIX socket in production, memory in a simulation.
#[derive(Clone)]
pub struct Connector(Arc<dyn Fn(PathBuf) -> Opening + Send + Sync>);

impl Connector {
    /// Calls `open` for each stream.
    pub fn new<F, O, S>(open: F) -> Self
    where
        F: Fn(PathBuf) -> O + Send + Sync + 'static,
        O: Future<Output = io::Result<S>> + Send + 'static,
        S: Io + 'static,
    {
        Self(Arc::new(move |path| {
            let opening = open(path);
            Box::pin(async move { Ok(Box::new(opening.await?) as Box<dyn Io>) }) as Opening
        }))
    }

    /// Uses UNIX sockets of the node.
    pub fn unix() -> Self {
        Self::new(UnixStream::connect)
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").finish_non_exhaustive()
    }
}

/// The client of the container runtime. Must be used in a tokio runtime.
pub struct Client {
    /// The socket paths in the order in which they are tried.
    sockets: Vec<PathBuf>,
    connector: Connector,
    open: Option<Open>,
}

/// A connection to a runtime whose version is known.
struct Open {
    connection: Connection,
    version: RuntimeVersion,
    socket: PathBuf,
}

impl Client {
    /// Opens no connection yet.
    pub const fn new(sockets: Vec<PathBuf>, connector: Connector) -> Self {
        Self {
            sockets,
            connector,
            open: None,
        }
    }

    /// Returns the socket and the version of the runtime that answers.
    pub async fn version(&mut self) -> Result<(&Path, &RuntimeVersion), CriError> {
        let open = self.open().await?;
        Ok((open.socket.as_path(), &open.version))
    }

    pub async fn status(&mut self) -> Result<(RuntimeVersion, RuntimeStatus), CriError> {
        let status: messages::StatusResponse = self.call("Status", Whole::default()).await?;
        let version = self.open().await?.version.clone();
        Ok((version, answers::status(status)))
    }

    /// Returns the `max` largest images, or all.
    pub async fn images(&mut self, max: Option<usize>) -> Result<Vec<NodeImage>, CriError> {
        let list = ImageList::new(LargestImages::new(max));
        self.call("ListImages", list).await
    }

    /// Returns the directory of the images; `None` if the runtime does not report it.
    pub async fn imagefs(&mut self) -> Result<Option<PathBuf>, CriError> {
        let info: messages::ImageFsInfoResponse =
            self.call("ImageFsInfo", Whole::default()).await?;
        Ok(answers::imagefs(info))
    }

    /// Calls the runtime, and closes a connection that cannot be used any more.
    async fn call<A: Answer>(
        &mut self,
        method: &'static str,
        answer: A,
    ) -> Result<A::Value, CriError> {
        let open = self.open().await?;
        let result = open.connection.call(method, answer);
        let result = limited(method, A::TIME_LIMIT, result).await;
        if result.as_ref().is_err_and(CriError::ends_connection) {
            self.open = None;
        }
        result
    }

    async fn open(&mut self) -> Result<&mut Open, CriError> {
        let open = match self.open.take().filter(|open| open.connection.is_open()) {
            Some(open) => open,
            None => self.connect().await?,
        };
        Ok(self.open.insert(open))
    }

    /// Tries the sockets in their order. Returns the first error that is not a missing socket.
    async fn connect(&self) -> Result<Open, CriError> {
        let mut failed = None;
        for socket in &self.sockets {
            match connect(&self.connector, socket).await {
                Ok(open) => return Ok(open),
                Err(err) if err.is_absent() => {}
                Err(err) => failed = failed.or(Some(err)),
            }
        }
        Err(failed.unwrap_or_else(|| CriError::NoSocket(self.sockets.clone())))
    }
}

/// Opens a connection and requests the version, because another service may listen at a socket.
async fn connect(connector: &Connector, socket: &Path) -> Result<Open, CriError> {
    let opened = limited("connect", LIMIT, async {
        let opened = (connector.0)(socket.to_owned()).await;
        let io = opened.map_err(|source| CriError::Connect {
            socket: socket.to_owned(),
            source,
        })?;
        Connection::open(io).await
    });
    let mut connection = opened.await?;
    let version = connection.call("Version", Whole::default());
    let version: messages::VersionResponse = limited("Version", LIMIT, version).await?;
    Ok(Open {
        connection,
        version: answers::version(version),
        socket: socket.to_owned(),
    })
}

async fn limited<T>(
    call: &'static str,
    limit: Duration,
    result: impl Future<Output = Result<T, CriError>>,
) -> Result<T, CriError> {
    let result = timeout(limit, result).await;
    result.unwrap_or(Err(CriError::NoAnswer { call, limit }))
}

#[cfg(test)]
mod tests {
    use nodepulse_core::escape::chain;
    use nodepulse_io::http2::testing::flood;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_call_to_a_runtime_that_floods_the_connection_fails_with_the_reason() {
        let connector = Connector::new(|_| async {
            let (client, server) = tokio::io::duplex(1 << 16);
            tokio::spawn(flood(server));
            Ok(client)
        });
        let mut client = Client::new(vec!["runtime.sock".into()], connector);
        let err = chain(&client.version().await.unwrap_err());
        assert!(err.contains("HTTP/2 frames without data"), "{err}");
    }
}
