//! Accepts connections, and limits what each of them costs.
//!
//! A new connection is never refused for the sake of an older one: if there are too many, the oldest
//! is closed. A probe sends its request at once, so whoever keeps connections open without a request,
//! or reconnects in a loop, closes only connections of its kind.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::{JoinSet, yield_now};
use tracing::debug;

use super::queue::{Queue, Ticket};
use super::{Front, Listener, Pages, QueryKind, pages};

/// Connections of a listener that have not asked for something which the loop answers. One that is
/// open costs a descriptor and at most 10 KiB.
const UNANSWERED: usize = 256;

/// Connections of a listener that have: each keeps an answer, such as all metrics, until it is read.
const ANSWERED: usize = 16;

/// Longest that a client may take to send the head of its request.
const HEADER_LIMIT: Duration = Duration::from_secs(5);

/// Longest life of a connection: the header, the loop's answer, and a client that reads slowly.
const LIFE_LIMIT: Duration = Duration::from_secs(15);

/// Most bytes of a request's head.
const HEADER_BYTES: usize = 8 << 10;

/// After a failure to accept a connection, such as no descriptor left. A probe waits longer than that.
const PAUSE: Duration = Duration::from_millis(100);

/// What the connections of one listener share.
#[derive(Debug, Clone)]
struct Queues {
    unanswered: Arc<Queue>,
    answered: Arc<Queue>,
}

/// Serves what `listener` accepts, until it accepts nothing more.
pub(super) async fn run(mut listener: Listener, pages: Pages, front: Front) {
    let queues = Queues {
        unanswered: Arc::new(Queue::new(UNANSWERED)),
        answered: Arc::new(Queue::new(ANSWERED)),
    };
    let mut connections = JoinSet::new();
    loop {
        // Those that have ended.
        while connections.try_join_next().is_some() {}
        let accepted = match &mut listener {
            Listener::Tcp(listener) => listener.accept().await.map(|(stream, _)| {
                connections.spawn(connection(stream, pages, front.clone(), queues.clone()));
            }),
            Listener::Unix(socket) => socket.listener.accept().await.map(|(stream, _)| {
                connections.spawn(connection(stream, pages, front.clone(), queues.clone()));
            }),
            Listener::InMemory(streams) => {
                let Some(stream) = streams.recv().await else {
                    // The connections that are open go on.
                    std::future::pending().await
                };
                connections.spawn(connection(stream, pages, front.clone(), queues.clone()));
                Ok(())
            }
        };
        match accepted {
            // A request that has arrived is read before the next connection is accepted, which may
            // close this one.
            Ok(()) => yield_now().await,
            Err(err) => {
                debug!(
                    err = &err as &dyn std::error::Error,
                    "connection not accepted"
                );
                // Perhaps the descriptor that is missing.
                queues.unanswered.close_oldest();
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// One connection. Its place in the queue is taken now, not when this is polled first.
fn connection<S>(
    stream: S,
    pages: Pages,
    front: Front,
    queues: Queues,
) -> impl Future<Output = ()> + use<S>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let ticket = Ticket::new();
    queues.unanswered.enter(&ticket);
    async move {
        let asks = |_: QueryKind| {
            queues.unanswered.leave(&ticket);
            queues.answered.enter(&ticket);
        };
        let service = service_fn(|request| pages::answer(request, pages, &front, &asks));
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_LIMIT)
            .max_buf_size(HEADER_BYTES)
            .keep_alive(false)
            .serve_connection(TokioIo::new(stream), service);
        tokio::select! {
            // What can be answered is answered, also if it is to be closed.
            biased;
            ended = tokio::time::timeout(LIFE_LIMIT, connection) => match ended {
                Ok(Ok(())) => {}
                Ok(Err(err)) => debug!(err = &err as &dyn std::error::Error, "connection broke"),
                Err(_) => debug!("connection took too long"),
            },
            () = ticket.closed() => debug!("connection closed: newer ones need its place"),
        }
    }
}
