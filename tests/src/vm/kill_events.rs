//! Real kills of every kind on cgroup v2, each by the Event that arrives at the API server.

use std::io;
use std::path::Path;
use std::time::Duration;

use super::{Found, loopback, note_panics, print_result};
use crate::kill_combinations::{self, Combination, Site, combinations};
use crate::provoke::Provoke;

/// The program in the initramfs.
const PROGRAM: &str = "/nodepulse";
/// Everything is slow under emulation.
const PATIENCE: Duration = Duration::from_secs(30);

/// The combinations whose names contain one of `parts`, which are separated by commas, one check each. Prints
/// the results as the other checks do.
pub fn run(parts: &str) -> io::Result<()> {
    let provoke = Provoke::next_to_this_program()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    note_panics();
    let mut all = combinations();
    all.retain(|one| parts.split(',').any(|part| one.name().contains(part)));
    let names: Vec<String> = all.iter().map(|combination| combination.name()).collect();
    println!("vm-plan: {}", names.join(" "));
    runtime.block_on(async {
        for (name, combination) in names.iter().zip(all) {
            let provoke = provoke.clone();
            let check = async move { found(&provoke, &[combination]).await.map(Found::Good) };
            print_result(name, check).await;
        }
    });
    runtime.shutdown_background();
    println!("vm-done");
    Ok(())
}

/// The messages of the Events.
async fn found(provoke: &Provoke, combinations: &[Combination]) -> io::Result<String> {
    loopback::up()?;
    let site = Site {
        program: Path::new(PROGRAM),
        provoke,
        is_virtual: true,
        patience: PATIENCE,
    };
    let rows = kill_combinations::of(site, combinations).await;
    let messages: Result<Vec<_>, _> = rows.into_iter().map(|row| row.found).collect();
    Ok(messages.map_err(io::Error::other)?.join(" | "))
}
