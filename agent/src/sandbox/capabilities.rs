//! Drops capabilities.

use caps::errors::CapsError;
use caps::{CapSet, Capability, CapsHashSet};

/// Opens the cgroup of a killed process by id, and reads credentials and cgroup files of any owner.
const READ_FILES: Capability = Capability::CAP_DAC_READ_SEARCH;

/// The capabilities to keep. Tests without the others whether maps of the probes can still be read.
pub(super) fn kept(map_lookup: impl Fn() -> bool) -> Result<Vec<Capability>, CapsError> {
    let permitted = caps::read(None, CapSet::Permitted)?;
    let mut kept = Vec::new();
    if permitted.contains(&READ_FILES) {
        kept.push(READ_FILES);
    }
    // One of the two loaded the programs.
    let loading = [Capability::CAP_BPF, Capability::CAP_SYS_ADMIN];
    if let Some(loads) = loading.into_iter().find(|one| permitted.contains(one)) {
        let effective = caps::read(None, CapSet::Effective)?;
        caps::set(None, CapSet::Effective, &kept.iter().copied().collect())?;
        let works = map_lookup();
        caps::set(None, CapSet::Effective, &effective)?;
        if !works {
            kept.push(loads);
        }
    }
    Ok(kept)
}

/// Clears all sets, but leaves `kept` in the effective and permitted ones. Returns the state of the
/// bounding set, which needs `CAP_SETPCAP` to clear and has no effect under `no_new_privs`.
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
    let remains = !caps::read(None, CapSet::Bounding)?.is_empty();
    Ok(if remains { "kept" } else { "empty" })
}

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
