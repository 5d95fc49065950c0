//! The privileges that the running agent needs, by configuration.

use std::path::{Path, PathBuf};

use nodepulse_linux::journal;

use crate::config::Config;

/// Pressure files; writing to one sets a trigger.
const NODE_PRESSURE: [&str; 3] = [
    "proc/pressure/cpu",
    "proc/pressure/io",
    "proc/pressure/memory",
];

/// Mount points of the unified hierarchy: alone, or in a hybrid layout.
const UNIFIED: [&str; 2] = ["sys/fs/cgroup", "sys/fs/cgroup/unified"];

const CGROUP_PRESSURE: [&str; 3] = ["cpu.pressure", "io.pressure", "memory.pressure"];

/// The credential plugin that the kubeconfig names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plugin {
    None,
    /// It is run when a token expires. It inherits the sandbox, which must suit unknown programs.
    Runs,
}

/// The UNIX sockets that may be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnixSockets {
    /// None, because the agent has opened all that it needs.
    None,
    /// Stream sockets, for new connections to the container runtime and the system bus.
    Streams,
}

/// Places that the agent uses after the start.
#[derive(Debug, Clone, Copy, Default)]
pub struct Used<'a> {
    /// The directory of requested certificates.
    pub certificates: Option<&'a Path>,
    /// The directory of the open history.
    pub history: Option<&'a Path>,
    /// The journal's socket is open.
    pub journal: bool,
}

/// Permissions of the running agent. Reading is not restricted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    pub plugin: Plugin,
    /// Directories in which files and sockets may be created, written and removed.
    pub directories: Vec<PathBuf>,
    /// The directory of the history, in which only files may be created, written and removed.
    pub history: Option<PathBuf>,
    /// The directory of the client certificate, in which links may be created as well.
    pub certificates: Option<PathBuf>,
    pub files: Vec<PathBuf>,
    /// Directories with the sockets of the container runtime and the system bus, to which
    /// connections may be opened. If empty, no UNIX socket may be opened.
    pub sockets: Vec<PathBuf>,
    /// The directory of the journal's socket, to which an open socket sends.
    pub journal: Option<PathBuf>,
}

impl Profile {
    pub const fn unix_sockets(&self) -> UnixSockets {
        if self.sockets.is_empty() {
            UnixSockets::None
        } else {
            UnixSockets::Streams
        }
    }

    /// The profile for `config` and `plugin`, with the places in use.
    ///
    /// Paths that do not exist when the sandbox is entered are never writable.
    pub fn new(config: &Config, plugin: Plugin, used: Used<'_>) -> Self {
        let root = &config.host_root;
        let of_pods = config.pods_cgroups.iter().flat_map(|pods| {
            let pods = pods.strip_prefix("/").unwrap_or(pods);
            let trees = UNIFIED.iter().map(move |mount| root.join(mount).join(pods));
            trees.flat_map(|tree| CGROUP_PRESSURE.iter().map(move |name| tree.join(name)))
        });
        let mut directories = vec![config.state_directory.clone()];
        let mut files: Vec<PathBuf> = NODE_PRESSURE.iter().map(|file| root.join(file)).collect();
        files.extend(of_pods);
        if root != Path::new("/") {
            // The files of the container, because the node's are mounted read-only.
            files.extend(NODE_PRESSURE.iter().map(|file| Path::new("/").join(file)));
        }
        if plugin == Plugin::Runs {
            // Used for the plugin's cache and discarded output.
            directories.push("/tmp".into());
            files.push("/dev/null".into());
        }
        Self {
            plugin,
            directories,
            history: used.history.map(Path::to_owned),
            certificates: used.certificates.map(Path::to_owned),
            files,
            sockets: sockets(config),
            journal: Path::new(journal::SOCKET)
                .parent()
                .filter(|_| used.journal)
                .map(Path::to_owned),
        }
    }
}

/// Without a runtime there are none: the connection to the bus that exists at the start is enough.
fn sockets(config: &Config) -> Vec<PathBuf> {
    let mut directories = directories_of(&config.runtime_sockets());
    let bus = config.system_bus();
    if !directories.is_empty() && bus.exists() {
        directories.extend(bus.parent().map(Path::to_owned));
    }
    directories
}

/// The directories that contain the sockets, because a runtime creates its socket again when it
/// starts, and those of the sockets to which links lead. If none of them exists yet, the nearest
/// existing ones above are returned.
fn directories_of(sockets: &[PathBuf]) -> Vec<PathBuf> {
    let parents = || sockets.iter().filter_map(|socket| socket.parent());
    let existing = parents().filter(|directory| directory.is_dir());
    let mut found: Vec<_> = existing.map(Path::to_owned).collect();
    if found.is_empty() {
        let nearest = |parent: &Path| {
            parent
                .ancestors()
                .find(|one| one.is_dir())
                .map(Path::to_owned)
        };
        found.extend(parents().filter_map(nearest));
    }
    let links = sockets.iter().filter(|socket| socket.is_symlink());
    let targets = links.filter_map(|link| link.canonicalize().ok());
    found.extend(targets.filter_map(|target| target.parent().map(Path::to_owned)));
    found
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use nodepulse_linux::host::scratch::Scratch;

    use super::*;
    use crate::config::Overrides;

    fn config(flags: &Overrides) -> Config {
        let absent = |_: &Path| Err(std::io::ErrorKind::NotFound.into());
        Config::load(flags, &|_| None, &absent, "worker-1").unwrap()
    }

    #[test]
    fn writable_paths_depend_on_the_configuration() {
        #[rustfmt::skip]
        let rows: [(&str, Plugin, &[&str], &[&str]); 3] = [
            (
                "/",
                Plugin::None,
                &[
                    "/proc/pressure/memory",
                    "/sys/fs/cgroup/kubepods/io.pressure",
                    "/sys/fs/cgroup/kubepods.slice/io.pressure",
                ],
                &["/host/proc/pressure/io", "/dev/null"],
            ),
            ("/host", Plugin::None,
                &["/proc/pressure/memory", "/host/proc/pressure/memory", "/host/sys/fs/cgroup/unified/kubepods/cpu.pressure"],
                &["/sys/fs/cgroup/kubepods/io.pressure"]),
            ("/", Plugin::Runs, &["/dev/null"], &[]),
        ];
        for (root, plugin, there, absent) in rows {
            let flags = Overrides {
                host_root: Some(root.to_owned()),
                ..Overrides::default()
            };
            let profile = Profile::new(&config(&flags), plugin, Used::default());
            let writable = |path: &&&str| profile.files.iter().any(|file| file == Path::new(path));
            assert_eq!(there.iter().find(|path| !writable(path)), None, "{root}");
            assert_eq!(absent.iter().find(writable), None, "{root}");
            let wide = profile.directories.contains(&"/tmp".into());
            assert_eq!(wide, plugin == Plugin::Runs);
            assert!(profile.directories.contains(&"/run/nodepulse".into()));
            // The configured history was not opened.
            let of_history = Path::new("/var/lib/nodepulse/history");
            assert!(!profile.directories.contains(&of_history.into()));
            assert_eq!((profile.history, profile.journal), (None, None));
            let used = Used {
                history: Some(of_history),
                ..Used::default()
            };
            let profile = Profile::new(&config(&flags), plugin, used);
            assert_eq!(profile.history.as_deref(), Some(of_history));
        }
    }

    #[test]
    fn the_directory_for_certificates_is_writable_only_if_they_are_requested() {
        let flags = Overrides {
            mode: Some("node".to_owned()),
            kubeconfig: Some("/var/lib/nodepulse/kubeconfig".to_owned()),
            bootstrap_kubeconfig: Some("/etc/nodepulse/bootstrap".to_owned()),
            cert_dir: Some("/var/lib/nodepulse/pki".to_owned()),
            ..Overrides::default()
        };
        let config = config(&flags);
        let directory = &config.certificate.as_ref().unwrap().directory;
        // The kubeconfig may have other credentials.
        for requested in [None, Some(directory.as_path())] {
            let used = Used {
                certificates: requested,
                ..Used::default()
            };
            let profile = Profile::new(&config, Plugin::None, used);
            assert_eq!(profile.certificates.as_deref(), requested);
        }
    }

    #[test]
    fn the_directories_of_the_runtimes_sockets_are_reachable() {
        let dir = Scratch::new();
        let sockets = ["run/containerd/containerd.sock", "run/crio/crio.sock"];
        let sockets = sockets.map(|socket| dir.path().join(socket));
        //  created, reachable
        let rows: [(&str, &[&str]); 3] = [
            ("run", &["run", "run"]),
            ("run/crio", &["run/crio"]),
            ("run/containerd", &["run/containerd", "run/crio"]),
        ];
        for (created, expected) in rows {
            dir.mkdir(created);
            let expected: Vec<_> = expected.iter().map(|one| dir.path().join(one)).collect();
            assert_eq!(directories_of(&sockets), expected, "with {created}");
        }
        // K3s has its socket elsewhere, and some nodes have a link to it.
        dir.write("run/k3s/containerd.sock", "");
        symlink(dir.path().join("run/k3s/containerd.sock"), &sockets[0]).unwrap();
        let target = dir.path().canonicalize().unwrap().join("run/k3s");
        assert_eq!(directories_of(&sockets)[2..], [target]);
    }

    #[test]
    fn unix_sockets_are_only_for_the_runtime_and_the_bus_in_node_mode() {
        let dir = Scratch::new();
        dir.write("run/dbus/system_bus_socket", "");
        let with = |mode: &str, endpoint: &str| {
            let flags = Overrides {
                mode: Some(mode.to_owned()),
                runtime_endpoint: Some(endpoint.to_owned()),
                host_root: Some(dir.path().display().to_string()),
                ..Overrides::default()
            };
            Profile::new(&config(&flags), Plugin::None, Used::default())
        };
        let node = with("node", "auto");
        assert_eq!(node.unix_sockets(), UnixSockets::Streams);
        assert_eq!(node.sockets.last(), Some(&dir.path().join("run/dbus")));
        for (mode, endpoint) in [("node", "none"), ("companion", "auto")] {
            let unix_sockets = with(mode, endpoint).unix_sockets();
            assert_eq!(unix_sockets, UnixSockets::None, "{mode} {endpoint}");
        }
    }
}
