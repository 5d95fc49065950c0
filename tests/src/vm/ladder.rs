//! Checks kills with other programs: each fallback, and the pair for the exact scope.

use std::io;

use nodepulse_core::record::Via;
use nodepulse_linux::kernel::{KillHook, Probe, ProbeState, Support, Wanted, loader, object};

use super::Found;
use crate::loaded::{Loaded, kills};
use crate::provoke::Provoke;

/// Loads as much of `wanted` as this kernel allows.
pub(super) fn load(wanted: &Wanted) -> io::Result<loader::LoadedKernel> {
    let object = object::embedded().ok_or_else(|| io::Error::other("built without the object"))?;
    loader::load(object, wanted).map_err(|why| io::Error::other(why.to_string()))
}

/// Uses only the entry of `mark_oom_victim`.
pub(super) async fn fentry(provoke: &Provoke) -> io::Result<Found> {
    let mut loaded = Loaded::start(load(&kills::only(KillHook::Fentry))?);
    if let Some(why) = missing(loaded.kernel.support(), Probe::OomFentry) {
        return Ok(Found::Skipped(why));
    }
    let summary = kills::by(&mut loaded, provoke, Via::Fentry).await?;
    loaded.assert_nothing_lost();
    Ok(Found::Good(summary))
}

/// Uses only the pid, and the exit.
pub(super) async fn exit(provoke: &Provoke) -> io::Result<Found> {
    let mut loaded = Loaded::start(load(&kills::only(KillHook::Exit))?);
    let summary = kills::by(&mut loaded, provoke, Via::Exit).await?;
    loaded.assert_nothing_lost();
    Ok(Found::Good(summary))
}

/// Uses the best rung, and the pair.
pub(super) async fn exact(provoke: &Provoke) -> io::Result<Found> {
    let wanted = Wanted {
        scope: true,
        ..kills::only(KillHook::Task)
    };
    let mut loaded = Loaded::start(load(&wanted)?);
    if let Some(why) = missing(loaded.kernel.support(), Probe::ScopeEnter) {
        return Ok(Found::Skipped(why));
    }
    let summary = kills::nested(&mut loaded, provoke).await?;
    loaded.assert_nothing_lost();
    Ok(Found::Good(summary))
}

/// Uses the best rung without the pair, whose inference is compared with the kernel's log.
pub(super) async fn limit(provoke: &Provoke) -> io::Result<Found> {
    let mut loaded = Loaded::start(load(&kills::only(KillHook::Task))?);
    let summary = kills::limit(&mut loaded, provoke).await?;
    loaded.assert_nothing_lost();
    Ok(Found::Good(summary))
}

/// Returns why `probe` does not run; `None` if it does, or if a better one does.
pub(super) fn missing(support: &Support, probe: Probe) -> Option<String> {
    match support.state(probe) {
        ProbeState::Missing(why) => Some(why.to_string()),
        ProbeState::Attached | ProbeState::NotNeeded => None,
    }
}
