//! Checks that each kill is reported during a million irrelevant records.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use agent_common::DropReason;
use nix::unistd::getppid;
use nodepulse_core::record::{Received, Record};
use nodepulse_io::clock::Clock;
use nodepulse_linux::kernel::{Probe, ring};
use tokio::sync::{mpsc, watch};

use super::testing::{FLOOD, Testing};
use crate::provoke::Provoke;
use crate::provoke::cgroup::CgroupTree;
use crate::{SOON, eventually};

const RECORDS: u64 = 1_000_000;
const KILLS: usize = 10;
/// Size of the queue of records, as in the agent.
const QUEUE: usize = 64;

/// Floods BULK and kills meanwhile.
pub async fn during_kills(provoke: &Provoke) -> io::Result<String> {
    let mut testing = Testing::load()?;
    let losses = testing.losses()?;
    let (send, mut events) = mpsc::channel(QUEUE);
    let (_stop, stopped) = watch::channel(false);
    for ring in ["CRIT", "BULK"] {
        let ring = testing.ring(ring)?;
        tokio::spawn(ring::read(
            ring,
            Clock::kernel(),
            send.clone(),
            stopped.clone(),
        ));
    }
    testing.attach_probe(Probe::OomVictim)?;
    testing.attach(FLOOD, "sys_enter")?;

    let killed = Arc::new(AtomicBool::new(false));
    let flood = flood(Arc::clone(&killed));
    // BULK is full before the first kill, because it is not read yet.
    eventually("loss", || match losses.by(DropReason::BulkFull) {
        Ok(1..) => Ok(()),
        other => Err(other),
    })
    .await;
    let kills = kills(provoke.clone(), killed);

    let mut seen = Seen::default();
    while !(flood.is_finished() && kills.is_finished()) {
        if let Ok(Some(received)) = tokio::time::timeout(SOON / 100, events.recv()).await {
            seen.note(received);
        }
    }
    let written = flood.join().expect("the flood does not panic");
    let victims = kills.join().expect("the killer does not panic")?;
    let lost = losses.by(DropReason::BulkFull)?;
    let rest = async {
        while seen.bulk + lost < written || seen.victims.len() < victims.len() {
            seen.note(events.recv().await.expect("the rings are read"));
        }
    };
    let in_time = tokio::time::timeout(SOON, rest).await;
    assert!(in_time.is_ok(), "{written} written, {lost} lost, {seen:?}");
    assert_eq!(seen.bulk + lost, written);
    assert_eq!(seen.victims, victims);
    for reason in DropReason::ALL
        .into_iter()
        .filter(|r| *r != DropReason::BulkFull)
    {
        assert_eq!((reason, losses.by(reason)?), (reason, 0));
    }
    Ok(format!(
        "{written} records: {} read, {lost} counted as lost; {} of {KILLS} kills reported",
        seen.bulk,
        victims.len()
    ))
}

#[derive(Debug, Default)]
struct Seen {
    bulk: u64,
    victims: BTreeSet<u32>,
}

impl Seen {
    fn note(&mut self, received: Received) {
        match received.record.expect("the record can be decoded") {
            Record::OomKill(kill) => assert!(self.victims.insert(kill.victim.0), "reported once"),
            Record::PidTrend { .. } => self.bulk += 1,
            other => panic!("unexpected record {other:?}"),
        }
    }
}

/// Causes records until there were enough and the kills have ended. Returns their number.
fn flood(killed: Arc<AtomicBool>) -> JoinHandle<u64> {
    thread::spawn(move || {
        let mut written = 0;
        while written < RECORDS || !killed.load(Ordering::Relaxed) {
            getppid();
            written += 1;
        }
        written
    })
}

/// Kills at the limit of a cgroup, one after the other. Returns the victims.
fn kills(provoke: Provoke, killed: Arc<AtomicBool>) -> JoinHandle<io::Result<BTreeSet<u32>>> {
    thread::spawn(move || {
        let victims = kill_all(&provoke);
        killed.store(true, Ordering::Relaxed);
        victims
    })
}

fn kill_all(provoke: &Provoke) -> io::Result<BTreeSet<u32>> {
    const MIB: u64 = 1 << 20;
    let mut tree = CgroupTree::new(&format!("nodepulse-flood-{}", std::process::id()))?;
    tree.add("container")?;
    tree.limit("container", 16 * MIB)?;
    let dir = tree.dir("container");
    (0..KILLS)
        .map(|_| provoke.eat_in(&dir, 128 * MIB).map(|(pid, _)| pid))
        .collect()
}
