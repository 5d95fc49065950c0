//! Accepts connections, and limits the cost of each.
//!
//! If there are too many connections, the oldest is closed for a new one. A health probe sends its
//! request at once, so a client that opens idle connections or reconnects in a loop only closes
//! idle ones.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::{JoinSet, yield_now};
use tracing::debug;

use super::pages::{self, LoopAnswer};
use super::queue::{Queue, Ticket};
use super::{Listener, PageResponder, Pages};

/// Connections per listener that wait for no answer. Each costs a descriptor and up to 10 KiB.
const UNANSWERED: usize = 256;

/// Connections per listener with a request to the loop, whose answers are kept until read.
const ANSWERED: usize = 16;

/// Recordings per listener: the one that goes on, and one that another has ended, whose client may
/// still read what waits. A client that reads nothing keeps its place until then, with a few MiB.
const RECORDINGS: usize = 2;

const HEADER_LIMIT: Duration = Duration::from_secs(5);

/// Except for a recording, which ends with the client.
const LIFE_LIMIT: Duration = Duration::from_secs(15);

/// Maximum size of the head of a request in bytes.
const HEADER_BYTES: usize = 8 << 10;

/// Delay after a failure to accept a connection, for example without free descriptors.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug, Clone)]
struct Queues {
    unanswered: Arc<Queue>,
    answered: Arc<Queue>,
    recordings: Arc<Queue>,
}

pub(super) async fn run(mut listener: Listener, pages: Pages, responder: PageResponder) {
    let queues = Queues {
        unanswered: Arc::new(Queue::new(UNANSWERED)),
        answered: Arc::new(Queue::new(ANSWERED)),
        recordings: Arc::new(Queue::new(RECORDINGS)),
    };
    let mut connections = JoinSet::new();
    loop {
        // Removes ended tasks.
        while connections.try_join_next().is_some() {}
        let accepted = match &mut listener {
            Listener::Tcp(listener) => listener.accept().await.map(|(stream, _)| {
                connections.spawn(connection(stream, pages, responder.clone(), queues.clone()));
            }),
            Listener::Unix(socket) => socket.listener.accept().await.map(|(stream, _)| {
                connections.spawn(connection(stream, pages, responder.clone(), queues.clone()));
            }),
            Listener::InMemory(streams) => {
                let Some(stream) = streams.recv().await else {
                    // Open connections continue.
                    std::future::pending().await
                };
                connections.spawn(connection(stream, pages, responder.clone(), queues.clone()));
                Ok(())
            }
        };
        match accepted {
            // Read a request that has arrived before accepting one that may close this connection.
            Ok(()) => yield_now().await,
            Err(err) => {
                debug!(
                    err = &err as &dyn std::error::Error,
                    "connection not accepted"
                );
                // This may free a descriptor.
                queues.unanswered.close_oldest();
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Serves one connection. It enters the queue now, not at the first poll.
fn connection<S>(
    stream: S,
    pages: Pages,
    responder: PageResponder,
    queues: Queues,
) -> impl Future<Output = ()> + use<S>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let ticket = Ticket::new();
    queues.unanswered.enter(&ticket);
    async move {
        let is_recording = AtomicBool::new(false);
        let on_loop_answer = |answer| {
            queues.unanswered.leave(&ticket);
            match answer {
                LoopAnswer::Page => queues.answered.enter(&ticket),
                LoopAnswer::Recording => {
                    queues.recordings.enter(&ticket);
                    is_recording.store(true, Ordering::Relaxed);
                }
            }
        };
        let service =
            service_fn(|request| pages::answer(request, pages, &responder, &on_loop_answer));
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_LIMIT)
            .max_buf_size(HEADER_BYTES)
            .keep_alive(false)
            .serve_connection(TokioIo::new(stream), service);
        tokio::select! {
            // Prefer an answer to closing.
            biased;
            ended = connection => match ended {
                Ok(()) => {}
                Err(err) => debug!(err = &err as &dyn std::error::Error, "connection failed"),
            },
            () = over(&is_recording) => debug!("connection exceeded its time limit"),
            () = ticket.closed() => debug!("connection closed in favour of newer ones"),
        }
    }
}

/// Returns at the time limit of a connection.
async fn over(is_recording: &AtomicBool) {
    tokio::time::sleep(LIFE_LIMIT).await;
    if is_recording.load(Ordering::Relaxed) {
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_a_recording_has_no_time_limit() {
        let began = Instant::now();
        over(&AtomicBool::new(false)).await;
        assert_eq!(began.elapsed().as_secs(), LIFE_LIMIT.as_secs());
        let hour = Duration::from_hours(1);
        let recording = AtomicBool::new(true);
        assert!(timeout(hour, over(&recording)).await.is_err());
    }
}
