//! Wait for readiness, drain, hand the bytes to [`crate::record::decode`], pass on what they say.

use std::io;

use aya::maps::{MapData, RingBuf};
use tokio::io::Interest;
use tokio::sync::{mpsc, watch};

use crate::clock::Clock;
use crate::fd;
use crate::record::Received;
use crate::record::decode::decode;

/// Records read before other tasks get their turn, so that a flood cannot hold up a lease.
const BATCH: usize = 256;

/// Reads one ring until the receiver is gone, or until `leaving` is true and the ring is empty: what
/// the kernel has told by then is passed on, whether or not it has woken us for it. Must be started right after the programs are
/// attached: records may precede the first wait, so the ring is drained once before it.
///
/// When `records` is full this waits, the ring fills, and the probe counts the loss: there is one
/// place where records are lost, and it is measured.
///
/// # Errors
///
/// When the ring cannot be waited for.
pub async fn read(
    ring: RingBuf<MapData>,
    clock: Clock,
    records: mpsc::Sender<Received>,
    mut leaving: watch::Receiver<bool>,
) -> io::Result<()> {
    let mut ring = fd::watch(ring, Interest::READABLE)?;
    loop {
        // Before the drain, so that one comes behind it.
        let last = *leaving.borrow_and_update();
        while drain(&mut ring.get_mut().0, clock, &records).await? == Drained::Partly {
            tokio::task::yield_now().await;
        }
        if last || records.is_closed() {
            return Ok(());
        }
        tokio::select! {
            ready = ring.readable() => ready?.clear_ready(),
            told = leaving.changed() => if told.is_err() {
                return Ok(()); // Nobody is left to read for.
            },
        }
    }
}

#[derive(PartialEq, Eq)]
enum Drained {
    Empty,
    Partly,
}

async fn drain(
    ring: &mut RingBuf<MapData>,
    clock: Clock,
    records: &mpsc::Sender<Received>,
) -> io::Result<Drained> {
    for _ in 0..BATCH {
        let Some(record) = ring.next() else {
            return Ok(Drained::Empty);
        };
        let received = Received {
            read: clock.now().boot,
            record: decode(&record),
        };
        drop(record);
        if records.send(received).await.is_err() {
            return Ok(Drained::Empty);
        }
    }
    Ok(Drained::Partly)
}
