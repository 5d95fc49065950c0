//! Takes connections, and lets none cost much.

use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tracing::debug;

use super::{Front, Listener, Pages, pages};

/// Connections at a time; more wait in the kernel's queue.
const CONNECTIONS: usize = 16;

/// Longest that a client may take to say what it wants.
const HEADER_LIMIT: Duration = Duration::from_secs(5);

/// Longest life of a connection: the header, the loop's answer, and somebody who reads slowly.
const LIFE_LIMIT: Duration = Duration::from_secs(15);

/// Most bytes of a request's head.
const HEADER_BYTES: usize = 8 << 10;

/// After a failure to take a connection, such as no descriptor left.
const PAUSE: Duration = Duration::from_secs(1);

/// Serves what `listener` gives, until it gives no more.
pub(super) async fn run(mut listener: Listener, pages: Pages, front: Front) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let Ok(place) = Arc::clone(&room).acquire_owned().await else {
            return;
        };
        // Those that have ended.
        while connections.try_join_next().is_some() {}
        let front = front.clone();
        match &mut listener {
            Listener::Tcp(listener) => match listener.accept().await {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, pages, front, place));
                }
                Err(err) => {
                    debug!(err = &err as &dyn std::error::Error, "connection not taken");
                    tokio::time::sleep(PAUSE).await;
                }
            },
            Listener::Unix(socket) => match socket.listener.accept().await {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, pages, front, place));
                }
                Err(err) => {
                    debug!(err = &err as &dyn std::error::Error, "connection not taken");
                    tokio::time::sleep(PAUSE).await;
                }
            },
            Listener::InMemory(streams) => {
                let Some(stream) = streams.recv().await else {
                    // The connections that are open go on.
                    std::future::pending().await
                };
                connections.spawn(connection(stream, pages, front, place));
            }
        }
    }
}

/// One connection; `_place` is free again at its end.
async fn connection<S>(stream: S, pages: Pages, front: Front, _place: OwnedSemaphorePermit)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let service = service_fn(|request| pages::answer(request, pages, &front));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_LIMIT)
        .max_buf_size(HEADER_BYTES)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    match tokio::time::timeout(LIFE_LIMIT, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(err)) => debug!(err = &err as &dyn std::error::Error, "connection broke"),
        Err(_) => debug!("connection took too long"),
    }
}
