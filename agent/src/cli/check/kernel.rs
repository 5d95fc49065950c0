//! The kernel: what may be attached to it, and by whom.

use std::fs;

use caps::{CapSet, Capability};

use super::super::run::wanted;
use super::report::{Item, Verdict};
use crate::config::{Config, Tier};
use crate::host::HostRoot;
use crate::kernel::support::Missing;
use crate::kernel::{KillHook, Probe, ProbeState, Support, Wanted, loader, object};

/// What each capability is good for here.
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
        "finds the cgroup of a kill in one call instead of a walk",
    ),
    (
        &[Capability::CAP_SYS_RESOURCE],
        "makes pressure triggers quicker and locks memory",
    ),
    (
        &[Capability::CAP_SYSLOG],
        "reads the kernel's log where kernel.dmesg_restrict is set and no program tells of kills",
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
            format!("{release} has no BPF ring buffers, so files are read instead of programs run"),
            "boot Linux 5.8 or newer; 5.10 to 7.2 are tested",
        ),
        None => Item::degraded(
            "kernel",
            format!("{release:?} is no release that could be read"),
            "mount the node's /proc, and name its directory with hostRoot",
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

/// What each probe came to when it was attached; all are detached again. The lower rungs of the
/// ladder are tried on their own, since the best one leaves them out.
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
    for rung in KillHook::ALL.into_iter().filter(|_| wanted.kills.is_some()) {
        let untried = |probe: &Probe| *support.state(*probe) == ProbeState::NotNeeded;
        if !rung.probes().iter().all(untried) {
            continue;
        }
        let alone = load(&Wanted {
            kills: Some(rung),
            ..Wanted::NOTHING
        });
        for (probe, state) in &mut support.probes {
            if rung.probes().contains(probe) {
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
    let hook = probe.hook();
    let missing = match state {
        ProbeState::Attached => {
            return Item::ok(&name, format!("attached to {hook}, and detached"));
        }
        ProbeState::NotNeeded => return Item::ok(&name, "not needed: a better one runs"),
        ProbeState::Missing(off @ Missing::TurnedOff) => return Item::ok(&name, off.to_string()),
        ProbeState::Missing(missing) => missing,
    };
    let of_kills = KillHook::ALL
        .iter()
        .any(|rung| rung.probes().contains(&probe));
    if let (true, Some(rung)) = (of_kills, support.kills()) {
        let other = rung.probes().first().map_or("", |probe| probe.program());
        return Item::ok(
            &name,
            format!("not on {hook} ({missing}), and not needed: {other} tells of kills"),
        );
    }
    let extra = matches!(probe, Probe::ScopeEnter | Probe::ScopeLeave);
    let verdict = if tier == Tier::Btf && !extra {
        Verdict::Missing
    } else {
        Verdict::Degraded
    };
    let instead = match probe {
        Probe::ScopeEnter | Probe::ScopeLeave => "what a kill was about is inferred",
        Probe::PidFork => "tasks are counted in /proc",
        Probe::DiskComplete => "disks are judged by /sys/block/*/stat",
        _ => "kills are told by the kernel's log or by counters",
    };
    Item::new(
        &name,
        verdict,
        &format!("not on {hook}: {missing}; {instead}"),
        cure(missing),
    )
}

fn cure(missing: &Missing) -> &'static str {
    match missing {
        Missing::Btf { .. } => "boot a kernel with CONFIG_DEBUG_INFO_BTF=y, and mount /sys",
        Missing::Refused { .. } => {
            "run as root or with CAP_BPF and CAP_PERFMON, without a lockdown of confidentiality"
        }
        Missing::NotBuilt => "install a build with eBPF",
        Missing::Member { .. } | Missing::Prototype | Missing::TurnedOff => {
            "nothing, or boot another kernel"
        }
    }
}

fn capabilities() -> Item {
    const NAME: &str = "capabilities";

    let held = match caps::read(None, CapSet::Effective) {
        Ok(held) => held,
        Err(err) => return Item::degraded(NAME, format!("unknown: {err}"), "mount /proc"),
    };
    let lacking = CAPABILITIES
        .iter()
        .filter(|(any, _)| !any.iter().any(|one| held.contains(one)))
        .filter_map(|(any, what)| Some(format!("{} {what}", any.first()?)));
    let lacking: Vec<String> = lacking.collect();
    if lacking.is_empty() {
        return Item::ok(NAME, "all that are of use");
    }
    Item::degraded(
        NAME,
        format!("{} of {} are lacking", lacking.len(), CAPABILITIES.len()),
        &format!("grant them: {}", lacking.join(", ")),
    )
}

/// `[none] integrity confidentiality`; `None` where there is no such file, or it is not ours to read.
fn lockdown_item(text: Option<&str>) -> Item {
    const NAME: &str = "lockdown";

    let mode = text.and_then(|text| text.split(['[', ']']).nth(1));
    match mode {
        Some("confidentiality") => Item::degraded(
            NAME,
            "confidentiality: programs may not read the kernel's memory",
            "boot with lockdown=integrity, or expect files to be read instead",
        ),
        Some(mode) => Item::ok(NAME, mode),
        None => Item::ok(NAME, "no lockdown to be seen"),
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
    fn a_release_is_judged_by_its_first_two_numbers() {
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
    fn only_what_nothing_else_tells_is_lacking() {
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
            all[0].found.contains("oom_fentry tells of kills"),
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
        assert_eq!(
            lacking, required,
            "the tier btf starts with these or not at all"
        );

        let off = probes(&Support::none(&Missing::TurnedOff), Tier::Files);
        assert!(off.iter().all(|item| item.verdict == Ok), "{off:?}");
    }

    #[test]
    fn a_lockdown_counts_where_it_hides_memory() {
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
