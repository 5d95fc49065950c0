//! Cgroups, PSI triggers, reservations, container runtime, clock, and blocked calls.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nodepulse_core::explanation::Explanation;
use nodepulse_core::node_status::Runtime;
use nodepulse_core::reading::Stall;
use nodepulse_core::reading::container_runtime::RuntimeVersion;
use nodepulse_core::settings::Mode;
use nodepulse_io::lane::{Lane, Purpose};
use nodepulse_linux::cri::{Client, Connector, CriError};
use nodepulse_linux::host::cgroup::pods::PodsPath;
use nodepulse_linux::host::cgroup::{Layout, Version};
use nodepulse_linux::host::{HostError, HostFile, HostRoot, container_logs};
use nodepulse_linux::os::ntp::{ClockSync, clock_sync};
use nodepulse_linux::os::psi;

use super::super::client;
use super::super::settings::{self, excessive_reservations};
use super::report::{Item, Verdict};
use crate::config::{Config, key};
use crate::queries::blocking::nodefs::Directories;
use crate::queries::pressure_files;

pub(super) fn items(config: &Config) -> Vec<Item> {
    let layout = Layout::detect(&HostRoot::new(&config.host_root));
    let mut items = vec![cgroups(layout.as_ref()).named("cgroups")];
    let pods = PodsPath::new(layout.ok(), &config.pods_cgroups);
    if is_without_kubernetes(config, &pods) {
        let found = "not used: there is no Kubernetes, and OOM kills are those of systemd units";
        items.push(Item::ok(found).named("pods"));
    } else {
        let of_pods = pods.layout().map(|layout| pods_cgroup(&pods, layout));
        items.extend(of_pods.map(|item| item.named("cgroup of the pods")));
        let links = container_logs(&HostRoot::new(&config.host_root));
        items.push(links.named(format!("/{}", container_logs::DIRECTORY)));
    }
    items.extend(stalls(config, &pods));
    let excessive = excessive_reservations(config).map(|why| Item::missing(why, "reserve less"));
    items.extend(excessive.map(|item| item.named("reservations")));
    items.push(clock(clock_sync()).named("clock"));
    let explained = client::get(&config.state_directory, "/v1/explain").ok();
    let blocked = explained.as_ref().map(blocked);
    items.extend(blocked.map(|item| item.named("calls to file systems")));
    items
}

/// Checks the file system of the container images. `reported` is their directory, if the runtime
/// reported it. Reading it may take long.
pub(super) async fn imagefs(config: &Config, reported: Option<PathBuf>) -> Item {
    const LIMIT: Duration = Duration::from_secs(5);

    let directories = Directories::new(config);
    if let Some(directory) = reported {
        directories.report_images(directory);
    }
    let images = directories.images();
    let images: Vec<String> = images.iter().map(|one| one.display().to_string()).collect();
    let images = images.join(" and ");
    let cure = format!(
        "set {} to the directory of the container images",
        key::imagefs_directory
    );
    let lane = Lane::new(Purpose::Nodefs);
    match lane.run(LIMIT, move || directories.imagefs()).await {
        Ok(Ok(Some((directory, usage)))) => {
            let (directory, available) = (directory.display(), usage.available);
            let capacity = usage.capacity;
            Item::ok(format!("{directory}, {available} of {capacity} available"))
        }
        Ok(Ok(None)) => Item::ok(format!(
            "no separate file system at {images}; the thresholds of nodefs apply"
        )),
        Ok(Err(err)) => Item::degraded(parted(&err).0, cure),
        Err(err) => Item::degraded(format!("cannot be read: {err}"), cure),
    }
}

fn blocked(explained: &Explanation) -> Item {
    let blocked = &explained.blocked_calls;
    if blocked.is_empty() {
        return Item::ok("none is blocked");
    }
    let found = format!("blocked: {}", blocked.join(", "));
    let cure = "repair the disk or file server; the agent does not need a restart";
    Item::degraded(found, cure)
}

fn cgroups(layout: Result<&Layout, &HostError>) -> Item {
    let layout = match layout {
        Ok(layout) => layout,
        Err(err) => {
            let cure = format!(
                "mount the node's /proc and /sys/fs/cgroup, and set {} to their directory",
                key::host_root
            );
            let found = format!("memory.available cannot be read: {}", parted(&err).0);
            return Item::missing(found, cure);
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
        return Item::degraded(format!("{found}, without the pids controller"), cure);
    }
    Item::ok(found)
}

/// Returns true if there is neither a trace of a kubelet nor a connection to an API server.
fn is_without_kubernetes(config: &Config, pods: &PodsPath) -> bool {
    let root = HostRoot::new(&config.host_root);
    let directories = [&config.root_directory, Path::new(container_logs::DIRECTORY)];
    let is_there = |directory: &Path| root.path(directory).exists();
    config.mode == Mode::Companion
        && !settings::connects(config)
        && pods.existing().is_empty()
        && !directories.into_iter().any(is_there)
}

fn pods_cgroup(pods: &PodsPath, layout: &Layout) -> Item {
    let shown = |path: &str| layout.memory.dir(path).display().to_string();
    let selected = shown(pods.path());
    let how = match pods.candidates() {
        [_] => "as configured".to_owned(),
        _ => format!("detected ({} is not set)", key::cgroup_driver),
    };
    match pods.existing().as_slice() {
        [] => {
            let all = pods.candidates().iter().map(|path| shown(path));
            let all: Vec<String> = all.collect();
            Item::degraded(
                format!(
                    "{} not found: OOM kills cannot be attributed to pods",
                    all.join(" and ")
                ),
                format!(
                    "start the kubelet; set {} and {} as in the kubelet, or use --kubelet-config",
                    key::cgroup_driver,
                    key::cgroup_root
                ),
            )
        }
        [_] => Item::ok(format!("{selected}, {how}")),
        several => {
            let all: Vec<String> = several.iter().map(|path| shown(path)).collect();
            Item::degraded(
                format!("{selected} selected; found {}", all.join(" and ")),
                format!(
                    "set {} as in the kubelet, or remove the unused cgroup",
                    key::cgroup_driver
                ),
            )
        }
    }
}

/// Sets each trigger, and removes it.
fn stalls(config: &Config, pods: &PodsPath) -> Vec<Item> {
    if !config.psi.enabled {
        let found = format!("disabled by {}", key::psi_enabled);
        return vec![Item::ok(found).named("pressure stalls (PSI)")];
    }
    let absent = pressure_files::absent(config, pods);
    let wanted = pressure_files::useful_triggers(config, &BTreeMap::new());
    let watched = pressure_files::watched(config, &BTreeMap::new());
    let files = pressure_files::files(config, pods);
    let item = |stall: Stall| {
        if !wanted.contains(&stall) {
            return Item::ok("not watched: its condition is off");
        }
        if let Some(source) = absent.get(&stall) {
            if !watched.contains(&stall) {
                return Item::ok(format!("{}; its condition is off", source.why()));
            }
            let found = format!("{}; its condition is omitted", source.why());
            return Item::degraded(found, source.remedy());
        }
        match files.get(&stall) {
            Some(file) if watched.contains(&stall) => trigger(config, stall, file),
            // Without the trigger, nothing is missing that a person turned on.
            Some(file) => Item {
                verdict: Verdict::Ok,
                cure: String::new(),
                ..trigger(config, stall, file)
            },
            None => Item::ok("not watched: there is no such file"),
        }
    };
    let name = |stall: Stall| format!("stall {} {}", stall.of.as_str(), stall.kind.as_str());
    Stall::ALL
        .map(|stall| item(stall).named(name(stall)))
        .into()
}

fn trigger(config: &Config, stall: Stall, file: &HostFile) -> Item {
    let path = file.path().display().to_string();
    match psi::open(file.path(), stall, config.psi.thresholds.of(stall.kind)) {
        Ok(_) => Item::ok(format!("trigger on {path}")),
        Err(err) => {
            let (why, cure) = parted(&err);
            let found = format!("no trigger on {path}: {why}; it is read every 10 s instead");
            Item::degraded(found, cure)
        }
    }
}

/// The links from which OOM kills get the names of pods and containers.
fn container_logs(root: &HostRoot) -> Item {
    let later = "names of pods and containers come from the API server, up to 2 s later";
    let mut links = 0_usize;
    match container_logs::each_name(root, |_| links = links.saturating_add(1)) {
        Ok(()) if links > 0 => Item::ok(format!("links of {links} containers")),
        Ok(()) => Item::ok(format!("no link yet; {later}")),
        Err(err) => Item::degraded(
            format!("{}; {later}", parted(&err).0),
            "start the kubelet, and mount this directory read-only into the agent's container",
        ),
    }
}

/// Splits the text of an error from the remedy after the first semicolon.
fn parted(err: &impl std::fmt::Display) -> (String, String) {
    let text = err.to_string();
    let (why, cure) = text.split_once("; ").unwrap_or((&text, ""));
    (why.to_owned(), cure.to_owned())
}

/// The container runtime, and the directory of its images.
pub(super) async fn container_runtime(config: &Config) -> (Item, Option<PathBuf>) {
    let sockets = config.runtime_sockets();
    let needed = config.runtime == Runtime::Required;
    if config.mode == Mode::Companion {
        return (Item::ok("not used: the kubelet uses it"), None);
    }
    if sockets.is_empty() {
        let item = if needed {
            let found = format!("none ({}): Ready is False", key::runtime_endpoint);
            let flag = key::allow_ready_without_runtime.spec.flag_name();
            Item::degraded(found, format!("set --{flag} if this is intended"))
        } else {
            Item::ok("none; Ready does not require one")
        };
        return (item, None);
    }
    let mut client = Client::new(sockets, Connector::unix());
    let item = match answers(&mut client).await {
        Ok(found) => match client.images(Some(1)).await {
            Ok(_) => Item::ok(found),
            Err(err) => {
                let (why, cure) = parted(&err);
                Item::degraded(format!("{found}; images are not reported: {why}"), &cure)
            }
        },
        Err(err) => {
            let (why, cure) = parted(&err);
            if needed {
                Item::degraded(format!("{why}: Ready is False"), cure)
            } else {
                Item::ok(format!("{why}; Ready does not require it"))
            }
        }
    };
    (item, client.imagefs().await.unwrap_or_default())
}

/// Returns version and socket of the runtime, if it answers all that `Ready` depends on.
async fn answers(client: &mut Client) -> Result<String, CriError> {
    client.status().await?;
    let (socket, RuntimeVersion { name, version }) = client.version().await?;
    let (socket, version) = (socket.display(), version.as_deref().unwrap_or("Unknown"));
    Ok(format!("{name} {version} at {socket}"))
}

fn clock(clock_sync: io::Result<ClockSync>) -> Item {
    /// Times in the API are whole seconds.
    const TOO_FAR: Duration = Duration::from_secs(1);
    const CURE: &str = "run chronyd, ntpd or systemd-timesyncd; leases and Events carry this \
                        machine's time";

    match clock_sync {
        Ok(ClockSync::Synchronised(off)) => {
            let found = format!("synchronised, maximum error {} ms", off.as_millis());
            if off < TOO_FAR {
                Item::ok(found)
            } else {
                Item::degraded(found, CURE)
            }
        }
        Ok(ClockSync::Unsynchronised) => Item::degraded("not synchronised", CURE),
        Err(err) => Item::degraded(format!("cannot be read: {err}"), CURE),
    }
}

#[cfg(test)]
mod tests {
    use nodepulse_linux::host::scratch::Scratch;

    use super::*;

    use crate::config::Overrides;

    #[test]
    fn only_the_stall_of_a_condition_that_is_on_is_degraded_without_a_trigger() {
        let dir = Scratch::new();
        // Directories are no pressure files.
        for kind in ["memory", "io"] {
            dir.mkdir(&format!("proc/pressure/{kind}"));
        }
        //  mode, verdicts of the node's stalls on memory and I/O
        let rows = [
            ("companion", [Verdict::Degraded, Verdict::Ok]),
            ("node", [Verdict::Ok, Verdict::Ok]),
        ];
        for (mode, expected) in rows {
            let flags = Overrides {
                mode: Some(mode.to_owned()),
                host_root: Some(dir.path().display().to_string()),
                ..Overrides::default()
            };
            let absent = |_: &Path| Err(io::ErrorKind::NotFound.into());
            let config = Config::load(&flags, &|_| None, &absent, "worker-1").unwrap();
            let items = stalls(&config, &PodsPath::new(None, &config.pods_cgroups));
            let of = |name| items.iter().find(|item| item.name == name).unwrap();
            let found = ["stall node memory", "stall node io"].map(of);
            assert_eq!(
                found.map(|item| item.verdict),
                expected,
                "{mode}: {found:?}"
            );
            assert!(found[1].found.contains("no trigger on"), "{found:?}");
        }
    }

    #[test]
    fn only_a_trace_of_kubernetes_makes_what_is_missing_for_pods_a_fault() {
        //  mode, kubeconfig, directory that exists
        let rows = [
            ("companion", None, None, true),
            ("companion", Some("/kubeconfig"), None, false),
            ("companion", None, Some("var/lib/kubelet"), false),
            ("companion", None, Some("var/log/containers"), false),
            ("companion", None, Some("sys/fs/cgroup/kubepods"), false),
            ("node", None, None, false),
        ];
        for (mode, kubeconfig, directory, expected) in rows {
            let dir = Scratch::new();
            dir.write(
                "proc/self/mountinfo",
                "31 23 0:27 / /sys/fs/cgroup rw - cgroup2 c rw\n",
            );
            dir.write("sys/fs/cgroup/cgroup.controllers", "memory pids\n");
            if let Some(directory) = directory {
                dir.mkdir(directory);
            }
            let flags = Overrides {
                mode: Some(mode.to_owned()),
                kubeconfig: kubeconfig.map(Into::into),
                host_root: Some(dir.path().display().to_string()),
                ..Overrides::default()
            };
            let absent = |_: &Path| Err(io::ErrorKind::NotFound.into());
            let config = Config::load(&flags, &|_| None, &absent, "worker-1").unwrap();
            let layout = Layout::detect(&dir.root()).unwrap();
            let pods = PodsPath::new(Some(layout), &config.pods_cgroups);
            let found = is_without_kubernetes(&config, &pods);
            assert_eq!(found, expected, "{mode} {kubeconfig:?} {directory:?}");
        }
    }

    #[test]
    fn a_clock_that_is_not_synchronised_is_degraded() {
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
    fn a_directory_of_links_that_cannot_be_read_is_degraded() {
        let dir = Scratch::new();
        let item = container_logs(&dir.root());
        assert_eq!(item.verdict, Verdict::Degraded, "{item}");
        assert!(item.found.contains("API server"), "{item}");
        dir.mkdir(container_logs::DIRECTORY);
        let item = container_logs(&dir.root());
        assert_eq!(item.verdict, Verdict::Ok, "{item}");
        for n in 0..2 {
            dir.write(&format!("{}/{n}.log", container_logs::DIRECTORY), "");
        }
        let item = container_logs(&dir.root());
        assert_eq!(
            (item.verdict, &*item.found),
            (Verdict::Ok, "links of 2 containers")
        );
    }

    #[tokio::test]
    async fn a_runtime_is_missing_only_if_node_mode_requires_one() {
        let dir = Scratch::new();
        //  mode, runtime.endpoint, allowReadyWithoutRuntime, verdict, in its text
        let rows = [
            ("companion", "auto", "false", Verdict::Ok, "not used"),
            ("node", "none", "true", Verdict::Ok, "none"),
            ("node", "none", "false", Verdict::Degraded, "Ready is False"),
            (
                "node",
                "auto",
                "true",
                Verdict::Ok,
                "there is no container runtime at",
            ),
            (
                "node",
                "auto",
                "false",
                Verdict::Degraded,
                "/run/crio/crio.sock: Ready is False",
            ),
        ];
        for (mode, endpoint, allowed, verdict, text) in rows {
            let flags = Overrides {
                mode: Some(mode.to_owned()),
                runtime_endpoint: Some(endpoint.to_owned()),
                allow_ready_without_runtime: Some(allowed.to_owned()),
                host_root: Some(dir.path().display().to_string()),
                ..Overrides::default()
            };
            let absent = |_: &Path| Err(io::ErrorKind::NotFound.into());
            let config = Config::load(&flags, &|_| None, &absent, "worker-1").unwrap();
            let (item, imagefs) = container_runtime(&config).await;
            assert_eq!(item.verdict, verdict, "{item}");
            assert!(item.found.contains(text), "{item}");
            assert_eq!(imagefs, None);
        }
    }
}
