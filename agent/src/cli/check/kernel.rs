//! The kernel: release, BTF, probes, capabilities, lockdown.

use std::fs;

use caps::{CapSet, Capability};
use nodepulse_linux::host::HostRoot;
use nodepulse_linux::kernel::support::Missing;
use nodepulse_linux::kernel::{KillHook, Probe, ProbeState, Support, Wanted, loader, object};

use super::super::run::wanted;
use super::report::{Item, Verdict};
use crate::config::{Config, Tier, key};

/// A capability, or one that includes it, and its use.
struct Use {
    any: &'static [Capability],
    what: &'static str,
    when: fn(&Support, Tier) -> bool,
}

const CAPABILITIES: [Use; 5] = [
    Use {
        any: &[Capability::CAP_BPF, Capability::CAP_SYS_ADMIN],
        what: "loads programs",
        when: runs_programs,
    },
    Use {
        any: &[Capability::CAP_PERFMON, Capability::CAP_SYS_ADMIN],
        what: "attaches them",
        when: runs_programs,
    },
    Use {
        any: &[Capability::CAP_DAC_READ_SEARCH],
        what: "resolves the cgroup of a kill in one call instead of a walk",
        when: runs_programs,
    },
    Use {
        any: &[Capability::CAP_SYS_RESOURCE],
        what: "allows shorter PSI trigger windows and locks memory",
        when: |_, _| true,
    },
    Use {
        any: &[Capability::CAP_SYSLOG],
        what: "reads the kernel log if kernel.dmesg_restrict is set",
        when: |support, tier| tier != Tier::Files && support.kills().is_none(),
    },
];

const fn runs_programs(_: &Support, tier: Tier) -> bool {
    matches!(tier, Tier::Auto | Tier::Btf)
}

pub(super) fn items(config: &Config) -> Vec<Item> {
    let root = HostRoot::new(&config.host_root);
    let release = root.read_string("proc/sys/kernel/osrelease");
    let mut items = vec![
        kernel(&release.unwrap_or_default()).named("kernel"),
        btf().named("kernel types (BTF)"),
    ];
    let tier = config.tier;
    let support = tried(config);
    items.extend(probes(&support, tier));
    items.push(capabilities(&support, tier).named("capabilities"));
    let lockdown = root.read_string("sys/kernel/security/lockdown");
    items.push(lockdown_item(lockdown.as_deref().ok()).named("lockdown"));
    items
}

fn kernel(release: &str) -> Item {
    /// The first release with BPF ring buffers.
    const OLDEST: (u32, u32) = (5, 8);

    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut number = || numbers.next()?.parse::<u32>().ok();
    let version = number().zip(number());
    match version {
        Some(version) if version >= OLDEST => Item::ok(release),
        Some(_) => Item::degraded(
            format!("{release} has no BPF ring buffer; files are read instead of running programs"),
            "boot Linux 5.8 or newer; 5.10 to 7.2 are tested",
        ),
        None => Item::degraded(
            format!("cannot parse the release \"{release}\""),
            format!(
                "mount the node's /proc, and set {} to its directory",
                key::host_root
            ),
        ),
    }
}

fn btf() -> Item {
    match fs::metadata(loader::BTF) {
        Ok(file) => Item::ok(format!("{} bytes", file.len())),
        Err(err) => Item::degraded(
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
        .map(|(probe, state)| {
            let item = item(*probe, state, support, tier);
            item.named(format!("probe {}", probe.program()))
        })
        .collect()
}

fn item(probe: Probe, state: &ProbeState, support: &Support, tier: Tier) -> Item {
    let attach_point = probe.hook();
    let missing = match state {
        ProbeState::Attached => {
            return Item::ok(format!("attached to {attach_point}, and detached"));
        }
        ProbeState::NotNeeded => return Item::ok("not needed: a better probe is attached"),
        ProbeState::Missing(off @ Missing::TurnedOff) => return Item::ok(off.to_string()),
        ProbeState::Missing(missing) => missing,
    };
    let of_kills = KillHook::ALL
        .iter()
        .any(|hook| hook.probes().contains(&probe));
    if let (true, Some(hook)) = (of_kills, support.kills()) {
        let other = hook.probes().first().map_or("", |probe| probe.program());
        return Item::ok(format!(
            "not on {attach_point} ({missing}), not needed: {other} reports OOM kills"
        ));
    }
    if matches!(probe, Probe::ScopeEnter | Probe::ScopeLeave) {
        return Item::ok(format!(
            "not on {attach_point} ({missing}), not needed: the scope of a kill is inferred"
        ));
    }
    let verdict = if tier == Tier::Btf {
        Verdict::Missing
    } else {
        Verdict::Degraded
    };
    let instead = match probe {
        Probe::PidFork => "tasks are counted in /proc",
        Probe::DiskComplete => "disk latency is read from /sys/block/*/stat",
        _ => "OOM kills are read from the kernel log or from counters",
    };
    let runs = |probe: &Probe| support.attached(*probe);
    let cure = cure(missing, Probe::ALL.iter().any(runs), verdict);
    let found = match cure {
        "" => {
            format!("not on {attach_point} of this kernel ({missing}), no action needed: {instead}")
        }
        _ => format!("not on {attach_point}: {missing}; {instead}"),
    };
    Item::new(verdict, found, cure)
}

/// Returns a remedy, which is empty if this kernel allows only what replaces the program. If
/// `others` are attached, privileges are not missing.
fn cure(missing: &Missing, others: bool, verdict: Verdict) -> &'static str {
    match missing {
        Missing::Btf { .. } => "boot a kernel with CONFIG_DEBUG_INFO_BTF=y, and mount /sys",
        Missing::Refused { .. } if !others => {
            "run as root or with CAP_BPF and CAP_PERFMON, without lockdown=confidentiality, and with a seccomp \
             profile that permits bpf (in the chart: seccompProfile.type=Unconfined)"
        }
        Missing::NotBuilt => "install a build with eBPF",
        _ if verdict == Verdict::Missing => "do not require the tier btf, or boot another kernel",
        Missing::Refused { .. }
        | Missing::Member { .. }
        | Missing::Prototype
        | Missing::TurnedOff => "",
    }
}

fn capabilities(support: &Support, tier: Tier) -> Item {
    let effective = match caps::read(None, CapSet::Effective) {
        Ok(effective) => effective,
        Err(err) => return Item::degraded(format!("unknown: {err}"), "mount /proc"),
    };
    let useful = CAPABILITIES.iter().filter(|one| (one.when)(support, tier));
    let lacking = useful.filter(|one| !one.any.iter().any(|any| effective.contains(any)));
    let lacking: Vec<(String, &str)> = lacking
        .filter_map(|one| Some((one.any.first()?.to_string(), one.what)))
        .collect();
    if lacking.is_empty() {
        return Item::ok("all useful ones");
    }
    let names: Vec<&str> = lacking.iter().map(|(name, _)| name.as_str()).collect();
    let uses = lacking.iter().map(|(name, what)| format!("{name} {what}"));
    let uses: Vec<String> = uses.collect();
    Item::degraded(
        format!("not granted: {}", names.join(", ")),
        format!(
            "grant what is missing (in the chart: extraCapabilities): {}",
            uses.join(", ")
        ),
    )
}

/// Parses `[none] integrity confidentiality`; `None` if the file does not exist or is not readable.
fn lockdown_item(text: Option<&str>) -> Item {
    let mode = text.and_then(|text| text.split(['[', ']']).nth(1));
    match mode {
        Some("confidentiality") => Item::degraded(
            "confidentiality: programs may not read the kernel's memory",
            "boot with lockdown=integrity; otherwise files are read instead",
        ),
        Some(mode) => Item::ok(mode),
        None => Item::ok("not reported by the kernel"),
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
            ("scope_enter", Ok),
            ("scope_leave", Ok),
            ("pid_fork", Degraded),
            ("disk_complete", Degraded),
        ];
        assert_eq!(verdicts(&all), expected);
        assert!(
            all[0].found.contains("oom_fentry reports OOM kills"),
            "{}",
            all[0]
        );
        for item in all.iter().filter(|item| item.verdict == Degraded) {
            assert_eq!(item.cure, "", "another program has the privileges: {item}");
        }

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
        assert!(none[6].cure.contains("CAP_BPF"), "{}", none[6]);

        let btf = probes(&support, Tier::Btf);
        assert!(btf[6].cure.contains("the tier btf"), "{}", btf[6]);

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
