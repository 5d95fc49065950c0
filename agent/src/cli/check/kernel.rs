//! The kernel: release, BTF, probes, capabilities, lockdown.

use std::fs;

use caps::{CapSet, Capability};

use super::super::run::wanted;
use super::report::{Item, Verdict};
use crate::config::{Config, Tier, key};
use crate::host::HostRoot;
use crate::kernel::support::Missing;
use crate::kernel::{KillHook, Probe, ProbeState, Support, Wanted, loader, object};

/// The use of each capability.
const CAPABILITIES: [(&[Capability], &str); 5] = [
    (
        &[Capability::CAP_BPF, Capability::CAP_SYS_ADMIN],
        "loads programs",
    ),
    (
        &[Capability::CAP_PERFMON, Capability::CAP_SYS_ADMIN],
        "attaches them",
    ),
    (
        &[Capability::CAP_DAC_READ_SEARCH],
        "resolves the cgroup of a kill in one call instead of a walk",
    ),
    (
        &[Capability::CAP_SYS_RESOURCE],
        "allows shorter PSI trigger windows and locks memory",
    ),
    (
        &[Capability::CAP_SYSLOG],
        "reads the kernel log if kernel.dmesg_restrict is set and no program reports OOM kills",
    ),
];

pub(super) fn items(config: &Config) -> Vec<Item> {
    let root = HostRoot::new(&config.host_root);
    let release = root.read_string("proc/sys/kernel/osrelease");
    let mut items = vec![kernel(&release.unwrap_or_default()), btf()];
    let tier = config.tier;
    items.extend(probes(&tried(config), tier));
    items.push(capabilities());
    let lockdown = root.read_string("sys/kernel/security/lockdown");
    items.push(lockdown_item(lockdown.as_deref().ok()));
    items
}

fn kernel(release: &str) -> Item {
    /// BPF ring buffers.
    const OLDEST: (u32, u32) = (5, 8);

    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut number = || numbers.next()?.parse::<u32>().ok();
    let version = number().zip(number());
    match version {
        Some(version) if version >= OLDEST => Item::ok("kernel", release),
        Some(_) => Item::degraded(
            "kernel",
            format!("{release} has no BPF ring buffer; files are read instead of running programs"),
            "boot Linux 5.8 or newer; 5.10 to 7.2 are tested",
        ),
        None => Item::degraded(
            "kernel",
            format!("cannot parse the release \"{release}\""),
            &format!(
                "mount the node's /proc, and set {} to its directory",
                key::host_root
            ),
        ),
    }
}

fn btf() -> Item {
    match fs::metadata(loader::BTF) {
        Ok(file) => Item::ok("kernel types (BTF)", format!("{} bytes", file.len())),
        Err(err) => Item::degraded(
            "kernel types (BTF)",
            format!("{}: {err}; no program can run", loader::BTF),
            "boot a kernel with CONFIG_DEBUG_INFO_BTF=y, and mount /sys",
        ),
    }
}

/// Attaches each probe, and detaches all again. The fallback hooks for kills are tried separately,
/// because they are not loaded if the first one works.
fn tried(config: &Config) -> Support {
    if matches!(config.tier, Tier::Kmsg | Tier::Files) {
        return Support::none(&Missing::TurnedOff);
    }
    let Some(object) = object::embedded() else {
        return Support::none(&Missing::NotBuilt);
    };
    let load = |wanted: &Wanted| match loader::load(object, wanted) {
        Ok(loaded) => loaded.kernel.support().clone(),
        Err(missing) => Support::none(&missing),
    };
    let wanted = wanted(&config.probes);
    let mut support = load(&wanted);
    for hook in KillHook::ALL.into_iter().filter(|_| wanted.kills.is_some()) {
        let untried = |probe: &Probe| *support.state(*probe) == ProbeState::NotNeeded;
        if !hook.probes().iter().all(untried) {
            continue;
        }
        let alone = load(&Wanted {
            kills: Some(hook),
            ..Wanted::NOTHING
        });
        for (probe, state) in &mut support.probes {
            if hook.probes().contains(probe) {
                *state = alone.state(*probe).clone();
            }
        }
    }
    support
}

fn probes(support: &Support, tier: Tier) -> Vec<Item> {
    let probes = support.probes.iter();
    probes
        .map(|(probe, state)| item(*probe, state, support, tier))
        .collect()
}

fn item(probe: Probe, state: &ProbeState, support: &Support, tier: Tier) -> Item {
    let name = format!("probe {}", probe.program());
    let attach_point = probe.hook();
    let missing = match state {
        ProbeState::Attached => {
            return Item::ok(&name, format!("attached to {attach_point}, and detached"));
        }
        ProbeState::NotNeeded => return Item::ok(&name, "not needed: a better probe is attached"),
        ProbeState::Missing(off @ Missing::TurnedOff) => return Item::ok(&name, off.to_string()),
        ProbeState::Missing(missing) => missing,
    };
    let of_kills = KillHook::ALL
        .iter()
        .any(|hook| hook.probes().contains(&probe));
    if let (true, Some(hook)) = (of_kills, support.kills()) {
        let other = hook.probes().first().map_or("", |probe| probe.program());
        return Item::ok(
            &name,
            format!("not on {attach_point} ({missing}), not needed: {other} reports OOM kills"),
        );
    }
    let extra = matches!(probe, Probe::ScopeEnter | Probe::ScopeLeave);
    let verdict = if tier == Tier::Btf && !extra {
        Verdict::Missing
    } else {
        Verdict::Degraded
    };
    let instead = match probe {
        Probe::ScopeEnter | Probe::ScopeLeave => "the scope of a kill is inferred",
        Probe::PidFork => "tasks are counted in /proc",
        Probe::DiskComplete => "disk latency is read from /sys/block/*/stat",
        _ => "OOM kills are read from the kernel log or from counters",
    };
    Item::new(
        &name,
        verdict,
        &format!("not on {attach_point}: {missing}; {instead}"),
        cure(missing),
    )
}

fn cure(missing: &Missing) -> &'static str {
    match missing {
        Missing::Btf { .. } => "boot a kernel with CONFIG_DEBUG_INFO_BTF=y, and mount /sys",
        Missing::Refused { .. } => {
            "run as root or with CAP_BPF and CAP_PERFMON, without lockdown=confidentiality"
        }
        Missing::NotBuilt => "install a build with eBPF",
        Missing::Member { .. } | Missing::Prototype | Missing::TurnedOff => {
            "none, or boot another kernel"
        }
    }
}

fn capabilities() -> Item {
    const NAME: &str = "capabilities";

    let effective = match caps::read(None, CapSet::Effective) {
        Ok(effective) => effective,
        Err(err) => return Item::degraded(NAME, format!("unknown: {err}"), "mount /proc"),
    };
    let lacking = CAPABILITIES
        .iter()
        .filter(|(any, _)| !any.iter().any(|one| effective.contains(one)))
        .filter_map(|(any, what)| Some(format!("{} {what}", any.first()?)));
    let lacking: Vec<String> = lacking.collect();
    if lacking.is_empty() {
        return Item::ok(NAME, "all useful ones");
    }
    Item::degraded(
        NAME,
        format!("{} of {} are missing", lacking.len(), CAPABILITIES.len()),
        &format!("grant them: {}", lacking.join(", ")),
    )
}

/// Parses `[none] integrity confidentiality`; `None` if the file does not exist or is not readable.
fn lockdown_item(text: Option<&str>) -> Item {
    const NAME: &str = "lockdown";

    let mode = text.and_then(|text| text.split(['[', ']']).nth(1));
    match mode {
        Some("confidentiality") => Item::degraded(
            NAME,
            "confidentiality: programs may not read the kernel's memory",
            "boot with lockdown=integrity; otherwise files are read instead",
        ),
        Some(mode) => Item::ok(NAME, mode),
        None => Item::ok(NAME, "not reported by the kernel"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Verdict::{Degraded, Missing as Lacking, Ok};

    fn verdicts(items: &[Item]) -> Vec<(&str, Verdict)> {
        let items = items.iter();
        items
            .map(|item| (item.name.strip_prefix("probe ").unwrap(), item.verdict))
            .collect()
    }

    #[test]
    fn the_first_two_numbers_of_a_release_decide() {
        let rows = [
            ("6.18.44-fc-v595", Ok),
            ("5.8.0", Ok),
            ("5.7.19", Degraded),
            ("4.18.0-553.el8.x86_64", Degraded),
            ("10.0", Ok),
            ("", Degraded),
            ("six", Degraded),
        ];
        for (release, verdict) in rows {
            assert_eq!(kernel(release).verdict, verdict, "{release:?}");
        }
    }

    #[test]
    fn a_probe_is_missing_only_if_nothing_replaces_it() {
        let refused = || Missing::Refused {
            why: "no".to_owned(),
        };
        let mut support = Support::none(&refused());
        support.probes[1].1 = ProbeState::Attached;
        let all = probes(&support, Tier::Auto);
        let expected = [
            ("oom_victim", Ok),
            ("oom_fentry", Ok),
            ("oom_pid", Ok),
            ("oom_exit", Ok),
            ("scope_enter", Degraded),
            ("scope_leave", Degraded),
            ("pid_fork", Degraded),
            ("disk_complete", Degraded),
        ];
        assert_eq!(verdicts(&all), expected);
        assert!(
            all[0].found.contains("oom_fentry reports OOM kills"),
            "{}",
            all[0]
        );
        assert!(all[6].cure.contains("CAP_BPF"), "{}", all[6]);

        let none = probes(&Support::none(&refused()), Tier::Btf);
        let lacking: Vec<&str> = verdicts(&none)
            .into_iter()
            .filter_map(|(name, verdict)| (verdict == Lacking).then_some(name))
            .collect();
        let required = [
            "oom_victim",
            "oom_fentry",
            "oom_pid",
            "oom_exit",
            "pid_fork",
            "disk_complete",
        ];
        assert_eq!(lacking, required, "the tier btf requires these");

        let off = probes(&Support::none(&Missing::TurnedOff), Tier::Files);
        assert!(off.iter().all(|item| item.verdict == Ok), "{off:?}");
    }

    #[test]
    fn only_confidentiality_lockdown_is_degraded() {
        let rows = [
            (Some("[none] integrity confidentiality\n"), Ok),
            (Some("none [integrity] confidentiality\n"), Ok),
            (Some("none integrity [confidentiality]\n"), Degraded),
            (Some("nonsense"), Ok),
            (None, Ok),
        ];
        for (text, verdict) in rows {
            assert_eq!(lockdown_item(text).verdict, verdict, "{text:?}");
        }
    }
}
