//! The state file.

use std::path::Path;

use nodepulse_core::escape::escape;
use nodepulse_core::incident::Position;
use nodepulse_core::kube_event::ReportedKills;
use nodepulse_core::subjects::kill_counters::AcknowledgedKills;
use nodepulse_core::subjects::{Previous, Saved};
use nodepulse_linux::host::HostRoot;
use nodepulse_linux::kernel::{ProbeState, Support};
use nodepulse_linux::state::State;
use tracing::warn;

use crate::config::Config;

/// Where the kernel identifies the boot, below the root.
pub const BOOT_ID: &str = "proc/sys/kernel/random/boot_id";

/// The fixed part of the state file: the boot, and for its readers the tier and the probes. `None`
/// if this boot cannot be distinguished from others.
pub fn base(config: &Config, tier: &str, support: &Support) -> Option<State> {
    let root = HostRoot::new(&config.host_root);
    let boot = root.read_string(BOOT_ID).ok()?;
    let probes = support.probes.iter().map(|(probe, state)| {
        let state = match state {
            ProbeState::Attached => "attached".to_owned(),
            ProbeState::NotNeeded => "not needed".to_owned(),
            ProbeState::Missing(why) => escape(why.to_string()),
        };
        (probe.program().to_owned(), state)
    });
    Some(State {
        boot: escape(boot),
        tier: tier.to_owned(),
        probes: probes.collect(),
        ..State::default()
    })
}

/// Loads the state that the previous agent saved in `directory`. `recorded`: the kills of the last
/// revisions in the history.
pub(super) fn load(
    directory: &Path,
    base: &State,
    recorded: &[(Position, ReportedKills)],
) -> Previous {
    let loaded = State::load(directory).unwrap_or_else(|err| {
        let err = &err as &dyn std::error::Error;
        warn!(directory = %directory.display(), err, "state of the previous start not loaded");
        None
    });
    match loaded {
        None => Previous::Unknown,
        Some(state) if state.boot != base.boot => Previous::OtherBoot,
        Some(state) => Previous::SameBoot(Saved {
            kills: with_later(state.kills, recorded),
            uncounted: state.uncounted,
            exceeded: state.exceeded,
        }),
    }
}

/// Adds what was recorded after the state was saved.
fn with_later(
    mut kills: AcknowledgedKills,
    recorded: &[(Position, ReportedKills)],
) -> AcknowledgedKills {
    let saved = kills.until;
    for (position, later) in recorded.iter().filter(|(position, _)| saved < *position) {
        kills.until = *position;
        kills.later.add_all(later.clone());
    }
    kills
}

pub(super) fn save(directory: &Path, base: &State, saved: Saved) {
    let Saved {
        kills,
        uncounted,
        exceeded,
    } = saved;
    let state = State {
        kills,
        uncounted,
        exceeded,
        ..base.clone()
    };
    if let Err(err) = state.save(directory) {
        let err = &err as &dyn std::error::Error;
        warn!(directory = %directory.display(), err, "state not saved for the next start");
    }
}
