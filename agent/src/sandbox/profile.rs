//! The privileges that the running agent needs, by configuration.

use std::path::{Path, PathBuf};

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

/// Whether credentials come from a plugin that the kubeconfig names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plugin {
    /// No program is run.
    None,
    /// It is run when a token expires. It inherits the sandbox, which must suit unknown programs.
    Runs,
}

/// Permissions of the running agent. Reading is not restricted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// Whether programs may be executed.
    pub plugin: Plugin,
    /// Directories in which files and sockets may be created, written and removed.
    pub directories: Vec<PathBuf>,
    /// The directory of the client certificate, in which links may be created as well.
    pub certificates: Option<PathBuf>,
    /// Files that may be opened for writing.
    pub files: Vec<PathBuf>,
}

impl Profile {
    /// The profile for `config` and `plugin`.
    ///
    /// Paths that do not exist when the sandbox is entered are never writable.
    pub fn new(config: &Config, plugin: Plugin) -> Self {
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
            // For its cache and discarded output.
            directories.push("/tmp".into());
            files.push("/dev/null".into());
        }
        Self {
            plugin,
            directories,
            certificates: config.certificate.as_ref().map(|one| one.directory.clone()),
            files,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Overrides;

    fn config(host_root: &str) -> Config {
        let flags = Overrides {
            host_root: Some(host_root.to_owned()),
            ..Overrides::default()
        };
        let absent = |_: &Path| Err(std::io::ErrorKind::NotFound.into());
        Config::load(&flags, &|_| None, &absent, "worker-1").unwrap()
    }

    #[test]
    fn writable_paths_depend_on_the_configuration() {
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
            (
                "/host",
                Plugin::None,
                &[
                    "/proc/pressure/memory",
                    "/host/proc/pressure/memory",
                    "/host/sys/fs/cgroup/unified/kubepods/cpu.pressure",
                ],
                &["/sys/fs/cgroup/kubepods/io.pressure"],
            ),
            ("/", Plugin::Runs, &["/dev/null"], &[]),
        ];
        for (root, plugin, there, absent) in rows {
            let profile = Profile::new(&config(root), plugin);
            let writable = |path: &&&str| profile.files.iter().any(|file| file == Path::new(path));
            assert_eq!(there.iter().find(|path| !writable(path)), None, "{root}");
            assert_eq!(absent.iter().find(writable), None, "{root}");
            let wide = profile.directories.contains(&"/tmp".into());
            assert_eq!(wide, plugin == Plugin::Runs);
            assert!(profile.directories.contains(&"/run/nodepulse".into()));
        }
    }
}
