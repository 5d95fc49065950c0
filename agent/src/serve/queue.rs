//! Open connections in the order of their arrival. The oldest is closed above the limit.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::Notify;

/// A place in a queue, released on drop.
#[derive(Debug)]
pub(super) struct Ticket(Arc<Notify>);

impl Ticket {
    pub(super) fn new() -> Self {
        Self(Arc::new(Notify::new()))
    }

    /// Returns when a queue closes the connection.
    pub(super) async fn closed(&self) {
        self.0.notified().await;
    }
}

#[derive(Debug)]
pub(super) struct Queue {
    limit: usize,
    /// Shared by the accepting task and the connections. A message to the former would arrive too
    /// late, after the next accept. Never locked across an await.
    open: Mutex<VecDeque<Weak<Notify>>>,
}

impl Queue {
    pub(super) fn new(limit: usize) -> Self {
        let open = Mutex::new(VecDeque::with_capacity(limit));
        Self { limit, open }
    }

    /// Adds a connection, and closes the oldest if the queue is full.
    pub(super) fn enter(&self, ticket: &Ticket) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() >= self.limit {
            open.retain(|place| place.strong_count() > 0);
        }
        if open.len() >= self.limit {
            close(open.pop_front());
        }
        open.push_back(Arc::downgrade(&ticket.0));
    }

    pub(super) fn leave(&self, ticket: &Ticket) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|place| !std::ptr::eq(place.as_ptr(), Arc::as_ptr(&ticket.0)));
    }

    pub(super) fn close_oldest(&self) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|place| place.strong_count() > 0);
        close(open.pop_front());
    }
}

fn close(place: Option<Weak<Notify>>) {
    if let Some(connection) = place.and_then(|place| place.upgrade()) {
        connection.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_closed(ticket: &Ticket) -> bool {
        use std::future::Future as _;
        use std::task::{Context, Poll, Waker};
        let closed = std::pin::pin!(ticket.closed());
        matches!(
            closed.poll(&mut Context::from_waker(Waker::noop())),
            Poll::Ready(())
        )
    }

    #[test]
    fn the_oldest_open_connection_is_closed() {
        let queue = Queue::new(3);
        let tickets: Vec<Ticket> = (0..3).map(|_| Ticket::new()).collect();
        for ticket in &tickets {
            queue.enter(ticket);
        }
        let closed = |tickets: &[Ticket]| tickets.iter().map(is_closed).collect::<Vec<_>>();
        assert_eq!(closed(&tickets), [false; 3], "there is room");

        queue.leave(&tickets[0]);
        let fourth = Ticket::new();
        queue.enter(&fourth);
        assert_eq!(closed(&tickets), [false; 3], "the first was removed");

        let fifth = Ticket::new();
        queue.enter(&fifth);
        assert_eq!(
            closed(&tickets),
            [false, true, false],
            "the oldest remaining one"
        );

        drop(fourth);
        let sixth = Ticket::new();
        queue.enter(&sixth);
        assert_eq!(closed(&tickets), [false; 3], "one has ended");
        queue.close_oldest();
        assert_eq!(closed(&tickets), [false, false, true]);
        assert!(!is_closed(&fifth) && !is_closed(&sixth));
    }
}
