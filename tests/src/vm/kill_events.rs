//! Causes real kills of every kind on cgroup v2, and checks each by the Event that arrives at the
//! API server.

use std::io;
use std::path::Path;
use std::time::Duration;

use super::thrash::{self, Memory};
use super::{Found, companion, idle, loopback, note_panics, print_result};
use crate::kill_combinations::{self, Combination, Site, combinations};
use crate::provoke::Provoke;

/// Path of the program in the initramfs.
const PROGRAM: &str = "/nodepulse";
/// Time limit under emulation.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs the combinations whose names contain one of the comma-separated `parts`, one check each.
/// Prints the results like the other checks.
pub fn run(parts: &str) -> io::Result<()> {
    let provoke = Provoke::next_to_this_program()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    note_panics();
    let mut all = combinations();
    all.retain(|one| parts.split(',').any(|part| one.name().contains(part)));
    let is_named = |name: &str| parts.split(',').any(|part| name.contains(part));
    let mut thrashing = Memory::ALL.to_vec();
    thrashing.retain(|memory| is_named(memory.name()));
    let [service, pids, reboot, idle] = [SERVICE, companion::PIDS, companion::REBOOT, idle::NAME]
        .map(|name| is_named(name).then_some(name));
    // Only the machine of this plan has enough memory.
    let idle = idle.filter(|_| !parts.is_empty());
    let names: Vec<String> = all.iter().map(|combination| combination.name()).collect();
    let further = thrashing.iter().map(|memory| memory.name());
    let further = service
        .into_iter()
        .chain(pids)
        .chain(reboot)
        .chain(further)
        .chain(idle);
    let plan: Vec<&str> = names.iter().map(String::as_str).chain(further).collect();
    println!("vm-plan: {}", plan.join(" "));
    runtime.block_on(async {
        for (name, combination) in names.iter().zip(all) {
            let provoke = provoke.clone();
            let check = async move { found(&provoke, &[combination]).await.map(Found::Good) };
            print_result(name, check).await;
        }
        if let Some(name) = service {
            let provoke = provoke.clone();
            let check = async move { in_service(&provoke).await.map(Found::Good) };
            print_result(name, check).await;
        }
        if let Some(name) = pids {
            let provoke = provoke.clone();
            let check = async move { companion::pids_of_service(&provoke).await.map(Found::Good) };
            print_result(name, check).await;
        }
        if let Some(name) = reboot {
            let provoke = provoke.clone();
            let check = async move { companion::reboot(&provoke).await.map(Found::Good) };
            print_result(name, check).await;
        }
        for memory in thrashing {
            let provoke = provoke.clone();
            let check = async move { thrash::reported(&provoke, memory).await.map(Found::Good) };
            print_result(memory.name(), check).await;
        }
        if let Some(name) = idle {
            let check = async move { idle::measured(&provoke).await.map(Found::Good) };
            print_result(name, check).await;
        }
    });
    runtime.shutdown_background();
    println!("vm-done");
    Ok(())
}

/// Name of a kill outside of the pods.
const SERVICE: &str = "service-node";

/// Returns the message of the Event about a kill in a service.
async fn in_service(provoke: &Provoke) -> io::Result<String> {
    loopback::up()?;
    Ok(kill_combinations::of_service(site(provoke)).await)
}

fn site(provoke: &Provoke) -> Site<'_> {
    Site {
        program: Path::new(PROGRAM),
        provoke,
        is_virtual: true,
        patience: PATIENCE,
    }
}

/// Returns the messages of the Events.
async fn found(provoke: &Provoke, combinations: &[Combination]) -> io::Result<String> {
    loopback::up()?;
    let rows = kill_combinations::of(site(provoke), combinations).await;
    let messages: Result<Vec<_>, _> = rows.into_iter().map(|row| row.found).collect();
    Ok(messages.map_err(io::Error::other)?.join(" | "))
}
