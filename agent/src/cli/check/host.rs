//! The node's files, its clock, and its container runtime.

use std::io;
use std::time::Duration;

use serde_json::Value;

use super::super::client;
use super::super::settings::overdrawn;
use super::report::{Item, Verdict};
use crate::app::stall_files;
use crate::config::{Config, Mode, RuntimePolicy};
use crate::host::cgroup::pods::PodsPath;
use crate::host::cgroup::{Layout, Version};
use crate::host::{HostError, HostRoot};
use crate::os::ntp::{ClockSync, clock_sync};
use crate::os::psi;

pub(super) fn items(config: &Config) -> Vec<Item> {
    let layout = Layout::detect(&HostRoot::new(&config.host_root));
    let mut items = vec![cgroups(layout.as_ref())];
    let pods = PodsPath::new(layout.ok(), &config.pods_cgroups);
    items.extend(pods.layout().map(|layout| pods_cgroup(&pods, layout)));
    items.extend(stalls(config, &pods));
    items.extend(overdrawn(config).map(|why| Item::missing("reservations", why, "reserve less")));
    items.push(runtime(config.mode, config.runtime));
    items.push(clock(clock_sync()));
    items.extend(blocked(
        client::get(&config.state_directory, "/v1/explain").ok(),
    ));
    items
}

/// What a daemon that runs waits for; nothing where none does.
fn blocked(explained: Option<Value>) -> Option<Item> {
    const NAME: &str = "calls to file systems";

    let explained = explained?;
    let blocked = explained.get("blockedCalls")?.as_array()?;
    let blocked: Vec<_> = blocked.iter().filter_map(Value::as_str).collect();
    if blocked.is_empty() {
        return Some(Item::ok(NAME, "the daemon waits for none"));
    }
    let found = format!("no answer to the daemon; blocked: {}", blocked.join(", "));
    let cure = "repair the disk or server that these files are on; a restart is not needed";
    Some(Item::degraded(NAME, found, cure))
}

fn cgroups(layout: Result<&Layout, &HostError>) -> Item {
    const NAME: &str = "cgroups";

    let layout = match layout {
        Ok(layout) => layout,
        Err(err) => {
            let cure = "mount the node's /proc and /sys/fs/cgroup, and name their directory with \
                        hostRoot";
            let found = format!("memory.available cannot be read: {err}");
            return Item::missing(NAME, found, cure);
        }
    };
    let version = match layout.memory.version {
        Version::V1 => "1",
        Version::V2 => "2",
    };
    let found = format!(
        "version {version}, memory at {}",
        layout.memory.mount.display()
    );
    if layout.pids.is_none() {
        let cure = "enable the pids controller";
        return Item::degraded(NAME, format!("{found}, no pids counted"), cure);
    }
    Item::ok(NAME, found)
}

fn pods_cgroup(pods: &PodsPath, layout: &Layout) -> Item {
    const NAME: &str = "cgroup of the pods";

    let shown = |path: &str| layout.memory.dir(path).display().to_string();
    let taken = shown(pods.path());
    let how = match pods.candidates() {
        [_] => "as configured",
        _ => "found: cgroupDriver is not set",
    };
    match pods.existing().as_slice() {
        [] => {
            let all = pods.candidates().iter().map(|path| shown(path));
            let all: Vec<String> = all.collect();
            Item::degraded(
                NAME,
                format!("no {}, so no kill is a pod's", all.join(" and no ")),
                "start the kubelet; a cgroupDriver that is set, and cgroupRoot, must be as the \
                 kubelet has them (or --kubelet-config)",
            )
        }
        [_] => Item::ok(NAME, format!("{taken}, {how}")),
        several => {
            let all: Vec<String> = several.iter().map(|path| shown(path)).collect();
            Item::degraded(
                NAME,
                format!("{taken}, by what is in it: there are {}", all.join(" and ")),
                "set cgroupDriver as the kubelet has it, or remove the cgroup that it has left",
            )
        }
    }
}

/// Each trigger really set, and dropped.
fn stalls(config: &Config, pods: &PodsPath) -> Vec<Item> {
    if !config.psi.enabled {
        return vec![Item::ok(
            "pressure stalls (PSI)",
            "turned off by psi.enabled",
        )];
    }
    let files = stall_files(config, pods).into_iter();
    let set = |(stall, file): (crate::reading::Stall, crate::host::HostFile)| {
        let name = format!("stall {} {}", stall.of.as_str(), stall.kind.as_str());
        let path = file.path().display().to_string();
        match psi::open(file.path(), stall) {
            Ok(_) => Item::ok(&name, format!("{path} takes a trigger")),
            Err(err) => Item::degraded(
                &name,
                format!("{path}: no trigger, so it is read every ten seconds where it is there"),
                &err.to_string(),
            ),
        }
    };
    files.map(set).collect()
}

fn runtime(mode: Mode, runtime: RuntimePolicy) -> Item {
    const NAME: &str = "container runtime (CRI)";

    match (mode, runtime) {
        (Mode::Companion, _) => Item::ok(NAME, "none asked: runtime.endpoint is none"),
        (Mode::Node, RuntimePolicy::NotNeeded) => {
            Item::ok(NAME, "none, and Ready does not need one")
        }
        (Mode::Node, RuntimePolicy::Missing) => Item::degraded(
            NAME,
            "none (runtime.endpoint), so Ready is False",
            "say --allow-ready-without-runtime where that is meant",
        ),
    }
}

fn clock(clock_sync: io::Result<ClockSync>) -> Item {
    const NAME: &str = "clock";
    /// Times in the API are whole seconds.
    const TOO_FAR: Duration = Duration::from_secs(1);
    const CURE: &str = "run chronyd, ntpd or systemd-timesyncd; leases and Events carry this \
                        machine's time";

    let (verdict, found) = match clock_sync {
        Ok(ClockSync::Synchronised(off)) => {
            let verdict = if off < TOO_FAR {
                Verdict::Ok
            } else {
                Verdict::Degraded
            };
            (verdict, format!("synchronised, at most {off:?} off"))
        }
        Ok(ClockSync::Unsynchronised) => (Verdict::Degraded, "not synchronised".to_owned()),
        Err(err) => (Verdict::Degraded, format!("could not be looked at: {err}")),
    };
    let cure = if verdict == Verdict::Ok { "" } else { CURE };
    Item::new(NAME, verdict, &found, cure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_nobody_keeps_is_told() {
        let off = |millis| Ok(ClockSync::Synchronised(Duration::from_millis(millis)));
        let rows = [
            (off(999), Verdict::Ok),
            (off(1000), Verdict::Degraded),
            (Ok(ClockSync::Unsynchronised), Verdict::Degraded),
            (
                Err(io::ErrorKind::PermissionDenied.into()),
                Verdict::Degraded,
            ),
        ];
        for (state, verdict) in rows {
            let item = clock(state);
            assert_eq!(item.verdict, verdict, "{item}");
            assert_eq!(item.cure.is_empty(), verdict == Verdict::Ok, "{item}");
        }
    }

    #[test]
    fn only_a_node_that_needs_one_lacks_a_runtime() {
        let rows = [
            (Mode::Companion, RuntimePolicy::Missing, Verdict::Ok),
            (Mode::Node, RuntimePolicy::NotNeeded, Verdict::Ok),
            (Mode::Node, RuntimePolicy::Missing, Verdict::Degraded),
        ];
        for (mode, kind, verdict) in rows {
            assert_eq!(runtime(mode, kind).verdict, verdict, "{mode:?} {kind:?}");
        }
    }
}
