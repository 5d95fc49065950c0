//! Capabilities: which stay, and the way there.

use caps::errors::CapsError;
use caps::{CapSet, Capability, CapsHashSet};

/// Opens a killed process's cgroup by its id, and reads credentials and cgroup files whoever owns
/// them.
const USEFUL: Capability = Capability::CAP_DAC_READ_SEARCH;

/// Those that stay, of those that are here. Tries with the others put aside whether maps of the
/// probes can still be read.
pub(super) fn kept(map_look_up: impl Fn() -> bool) -> Result<Vec<Capability>, CapsError> {
    let held = caps::read(None, CapSet::Permitted)?;
    let mut kept = Vec::new();
    if held.contains(&USEFUL) {
        kept.push(USEFUL);
    }
    // Whichever of the two the programs were loaded by.
    let loading = [Capability::CAP_BPF, Capability::CAP_SYS_ADMIN];
    if let Some(loads) = loading.into_iter().find(|one| held.contains(one)) {
        let effective = caps::read(None, CapSet::Effective)?;
        caps::set(None, CapSet::Effective, &kept.iter().copied().collect())?;
        let works = map_look_up();
        caps::set(None, CapSet::Effective, &effective)?;
        if !works {
            kept.push(loads);
        }
    }
    Ok(kept)
}

/// Empties every set but `kept` in the effective and permitted ones; gives the state of the bounding
/// set. That one takes `CAP_SETPCAP` to empty; full, it gives nothing under `no_new_privs`.
pub(super) fn drop_all_but(kept: &[Capability]) -> Result<&'static str, CapsError> {
    let may_empty = caps::has_cap(None, CapSet::Effective, Capability::CAP_SETPCAP)?;
    if may_empty {
        caps::clear(None, CapSet::Bounding)?;
    }
    let kept: CapsHashSet = kept.iter().copied().collect();
    caps::clear(None, CapSet::Ambient)?;
    caps::set(None, CapSet::Effective, &kept)?;
    caps::set(None, CapSet::Permitted, &kept)?;
    caps::clear(None, CapSet::Inheritable)?;
    let left = !caps::read(None, CapSet::Bounding)?.is_empty();
    Ok(if left { "kept" } else { "empty" })
}

/// What is in force, by name.
pub(super) fn effective() -> String {
    let Ok(effective) = caps::read(None, CapSet::Effective) else {
        return "unknown".to_owned();
    };
    let mut names: Vec<String> = effective.iter().map(ToString::to_string).collect();
    names.sort();
    if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(",")
    }
}
