//! Waits for a ring, drains it, decodes the records, and sends them to the loop.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use aya::maps::{MapData, RingBuf};
use nodepulse_core::record::Received;
use nodepulse_core::record::decode::decode;
use nodepulse_io::clock::Clock;
use nodepulse_io::fd;
use tokio::io::Interest;
use tokio::sync::{mpsc, watch};

/// Records that are read before other tasks run: a flood must not delay a lease renewal.
const BATCH: usize = 256;

/// Time limit for records that are pending when the agent is asked to stop. It is enough for full
/// rings; a storm that continues is cut off.
pub const LAST_RECORDS: Duration = Duration::from_millis(500);

/// A ring in the form that the runtime can watch.
struct Ring(RingBuf<MapData>);

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

// SAFETY: a ring owns its map, and a map keeps its descriptor from creation to drop.
unsafe impl fd::OneDescriptor for Ring {}

/// Reads one ring until the receiver is dropped, or until `stopping` is true and the ring is empty.
/// Must be started right after the programs are attached. It drains the ring once before it waits,
/// because records may precede the first wait.
///
/// If `records` is full, this waits, the ring fills, and the probe counts the loss. Records are
/// lost in no other place.
pub async fn read(
    ring: RingBuf<MapData>,
    clock: Clock,
    records: mpsc::Sender<Received>,
    mut stopping: watch::Receiver<bool>,
) -> io::Result<()> {
    let mut ring = fd::watch(Ring(ring), Interest::READABLE)?;
    loop {
        // This is read before the drain, so that a last drain follows the signal.
        let last = *stopping.borrow_and_update();
        while drain(&mut ring.get_mut().0.0, clock, &records).await? {
            tokio::task::yield_now().await;
        }
        if last || records.is_closed() {
            return Ok(());
        }
        tokio::select! {
            ready = ring.readable() => ready?.clear_ready(),
            changed = stopping.changed() => if changed.is_err() {
                return Ok(()); // The sender is dropped: the loop has ended.
            },
        }
    }
}

/// Returns `true` if records may be left.
async fn drain(
    ring: &mut RingBuf<MapData>,
    clock: Clock,
    records: &mpsc::Sender<Received>,
) -> io::Result<bool> {
    for _ in 0..BATCH {
        let Some(record) = ring.next() else {
            return Ok(false);
        };
        let received = Received {
            read: clock.now().boot,
            record: decode(&record),
        };
        drop(record);
        if records.send(received).await.is_err() {
            return Ok(false);
        }
    }
    Ok(true)
}
