//! Space and inodes of nodefs, with the root directory, and of imagefs, with container images.

use std::cell::LazyCell;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use nodepulse_core::escape::escape;
use nodepulse_core::pods::PodId;
use nodepulse_core::pressure::sample::Sample;
use nodepulse_core::reading::{FilesystemAccess, FilesystemReading, NodeFilesystem, Signal};
use nodepulse_core::subjects::StorageSample;
use nodepulse_core::units::DeviceNumber;
use nodepulse_linux::host::mounts::{Mount, Mounts};
use nodepulse_linux::host::pod_volumes::PodVolume;
use nodepulse_linux::host::statfs::{self, Filesystem, Usage};
use nodepulse_linux::host::{HostError, HostRoot, ext4, node_disks, pod_volumes};
use tokio::sync::watch;
use tracing::debug;

use crate::config::Config;

/// Image directories of containerd, and of CRI-O and Podman, unless a runtime reports another.
const IMAGES: [&str; 2] = ["/var/lib/containerd", "/var/lib/containers/storage"];

/// Most file systems that are read in addition to the root file system.
const MAX_MOUNTED: usize = 64;

#[derive(Debug, Clone)]
pub struct Directories {
    root: HostRoot,
    /// Path below the host root.
    pub(super) nodefs: PathBuf,
    /// Paths on the node.
    images: Images,
    has_pods: bool,
}

#[derive(Debug, Clone)]
enum Images {
    Configured(PathBuf),
    /// The directory that the container runtime reports; before that, one of [`IMAGES`]. Written by
    /// the client of the runtime, read by the helper threads: only the latest value counts.
    Reported(watch::Sender<Option<PathBuf>>),
}

impl Directories {
    pub fn new(config: &Config) -> Self {
        let root = HostRoot::new(&config.host_root);
        let images = config.imagefs_directory.clone();
        Self {
            nodefs: root.path(&config.root_directory),
            images: images.map_or_else(
                || Images::Reported(watch::Sender::default()),
                Images::Configured,
            ),
            root,
            has_pods: true,
        }
    }

    /// A machine without Kubernetes: what a disk contains belongs to the machine, not to pods.
    pub fn without_pods(self) -> Self {
        Self {
            has_pods: false,
            ..self
        }
    }

    /// Returns true if there is a kubelet's directory.
    pub fn has_kubelet(&self) -> bool {
        self.nodefs.exists()
    }

    pub(super) const fn has_pods(&self) -> bool {
        self.has_pods
    }

    /// Without images elsewhere; for tests.
    #[cfg(test)]
    pub(super) fn below(root: HostRoot, nodefs: &str) -> Self {
        Self {
            nodefs: root.path(nodefs),
            images: Images::Reported(watch::Sender::default()),
            root,
            has_pods: true,
        }
    }

    /// The pods that use a disk, each with the name of the volume.
    pub(super) fn volumes_on(&self, disk: DeviceNumber) -> Vec<(PodId, String)> {
        let kubelet = self.nodefs_on_node();
        let found = pod_volumes::on_disk(&self.root, &kubelet, disk);
        let found = ok_or_log!(debug, found, "volumes not read");
        let volume = |of: PodVolume| Some((PodId::parse(&of.pod)?, of.volume));
        found.into_iter().flatten().filter_map(volume).collect()
    }

    fn nodefs_on_node(&self) -> PathBuf {
        let below = self.nodefs.strip_prefix(self.root.dir());
        Path::new("/").join(below.unwrap_or(&self.nodefs))
    }

    pub(super) const fn root(&self) -> &HostRoot {
        &self.root
    }

    /// Returns the directories as paths on the node.
    pub(super) fn on_node(&self) -> Vec<PathBuf> {
        let all = self.targets().into_iter();
        all.map(|(_, path)| path).collect()
    }

    /// nodefs, the directories of images, and the root, as paths on the node.
    fn targets(&self) -> Vec<(NodeFilesystem, PathBuf)> {
        let nodefs = self.nodefs_on_node();
        let images = self.images().into_iter();
        let images = images.map(|path| (NodeFilesystem::Imagefs, path));
        let root = (NodeFilesystem::Root, PathBuf::from("/"));
        if !self.has_pods {
            return vec![root];
        }
        [(NodeFilesystem::Nodefs, nodefs), root]
            .into_iter()
            .chain(images)
            .collect()
    }

    /// Access to nodefs, imagefs and the root file system by the host's mounts, and their errors.
    /// On a machine without Kubernetes, to the root file system and all others on its disks.
    pub(super) fn filesystems(&self) -> Vec<FilesystemReading> {
        let Ok(mounts) = Mounts::of_host(&self.root) else {
            return Vec::new();
        };
        let mut read: Vec<FilesystemReading> = Vec::new();
        for (filesystem, path) in self.targets() {
            let path = node_disks::on_host(&self.root, &path);
            let Some(mount) = mounts.of(&path) else {
                continue;
            };
            // The first directory of images that is a separate file system is imagefs.
            let is_known = read.iter().any(|known| known.filesystem == filesystem);
            let is_root =
                filesystem == NodeFilesystem::Imagefs && mounts.of(Path::new("/")) == Some(mount);
            if !is_known && !is_root {
                read.push(self.reading(filesystem, mount));
            }
        }
        if !self.has_pods {
            read.extend(self.mounted(&mounts));
        }
        read
    }

    /// File systems on disks of the node other than the root file system.
    fn mounted(&self, mounts: &Mounts) -> Vec<FilesystemReading> {
        let root = mounts.of(Path::new("/")).map(|mount| mount.device);
        let all = node_disks::mounted(&self.root, mounts).into_iter();
        let others = all.filter(|(mount, _)| Some(mount.device) != root);
        let reading = |(mount, _): (&Mount, _)| {
            let point = escape(mount.point.as_os_str().as_bytes());
            self.reading(NodeFilesystem::Mounted(point.into()), mount)
        };
        others.take(MAX_MOUNTED).map(reading).collect()
    }

    fn reading(&self, filesystem: NodeFilesystem, mount: &Mount) -> FilesystemReading {
        let device = ext4::device_name(&self.root, mount.device);
        let errors = device
            .as_deref()
            .and_then(|name| ext4::errors(&self.root, name));
        let device = device.as_deref().unwrap_or(&mount.source);
        let place = format!("{} on {device}", mount.point.display());
        FilesystemReading {
            filesystem,
            mount: mount.id,
            place: escape(place),
            access: mount.access,
            errors,
        }
    }

    /// The directories that may be on imagefs, in the order of preference.
    pub fn images(&self) -> Vec<PathBuf> {
        match &self.images {
            Images::Configured(directory) => vec![directory.clone()],
            Images::Reported(reported) => match &*reported.borrow() {
                Some(directory) => vec![directory.clone()],
                None => IMAGES.map(PathBuf::from).into(),
            },
        }
    }

    /// Sets the directory in which the container runtime stores its images, for all clones. Without
    /// effect on a configured directory.
    pub fn report_images(&self, directory: PathBuf) {
        if let Images::Reported(reported) = &self.images {
            reported.send_replace(Some(directory));
        }
    }

    /// Imagefs and the directory that is on it, if it is not nodefs. May block. Fails if a
    /// directory exists, but cannot be read.
    pub fn imagefs(&self) -> Result<Option<(PathBuf, Usage)>, HostError> {
        let (_, nodefs) = self.nodefs()?;
        let found = self.separate(&nodefs)?;
        Ok(found.map(|(directory, filesystem)| (directory, filesystem.usage)))
    }

    /// An existing directory on nodefs, and its file system.
    fn nodefs(&self) -> Result<(PathBuf, Filesystem), HostError> {
        let directory = existing(&self.nodefs)?;
        let filesystem = statfs::read(&directory)?;
        Ok((directory, filesystem))
    }

    fn separate(&self, nodefs: &Filesystem) -> Result<Option<(PathBuf, Filesystem)>, HostError> {
        statfs::separate(&self.root, &self.images(), nodefs)
    }

    /// Reads space and inodes; `volumes` become part of the answer.
    pub(super) fn sample(&self, volumes: Option<Vec<String>>) -> StorageSample {
        let found = ok_or_log!(debug, self.nodefs(), "file system not read");
        let Some((directory, nodefs)) = found else {
            return StorageSample::missing();
        };
        let mut samples: Vec<_> = samples(Some(nodefs.usage), Signal::NODEFS).collect();
        let mounts = LazyCell::new(|| Mounts::of_this_process(&self.root).ok());
        let is_read_only = |of, filesystem: &Filesystem, path: &Path| {
            // The flag of `statfs` is also set if only the mount is read-only, as in a container.
            // Only then, the mounts of this process are read.
            if !filesystem.read_only {
                return Some((of, false));
            }
            let mount = mounts.as_ref()?.of(&path.canonicalize().ok()?)?;
            Some((of, mount.access == FilesystemAccess::ReadOnly))
        };
        let mut read_only = Vec::new();
        if self.has_pods {
            read_only.extend(is_read_only(NodeFilesystem::Nodefs, &nodefs, &directory));
        }
        match ok_or_log!(debug, self.separate(&nodefs), "imagefs not read") {
            Some(found) => {
                let separate = found.as_ref().filter(|_| self.has_pods);
                read_only.extend(separate.and_then(|(directory, imagefs)| {
                    let path = self.root.path(directory);
                    is_read_only(NodeFilesystem::Imagefs, imagefs, &path)
                }));
                let usage = found.map(|(_, imagefs)| imagefs.usage);
                samples.extend(self::samples(usage, Signal::IMAGEFS));
            }
            None => samples.extend(Signal::IMAGEFS.map(Sample::Missing)),
        }
        StorageSample {
            samples,
            capacity: Some(nodefs.usage.capacity),
            read_only,
            filesystem_errors: ext4::count_all(&self.root),
            volumes,
        }
    }
}

/// Samples of a file system. There may be no separate one, and it may have no inodes to count.
fn samples(usage: Option<Usage>, signals: [Signal; 2]) -> impl Iterator<Item = Sample> {
    let readings = usage.map_or([None; 2], |usage| usage.readings(signals));
    let pairs = signals.into_iter().zip(readings);
    pairs.map(|(signal, reading)| reading.map_or(Sample::Absent(signal), Sample::Read))
}

/// The directory, or its nearest existing ancestor, on whose file system the directory would be
/// created. If a directory exists but cannot be read, no ancestor is tried.
fn existing(directory: &Path) -> Result<PathBuf, HostError> {
    for dir in directory.ancestors() {
        match dir.metadata() {
            Ok(found) if found.is_dir() => return Ok(dir.to_owned()),
            Ok(_) => {}
            Err(source)
                if matches!(
                    source.kind(),
                    ErrorKind::NotFound | ErrorKind::NotADirectory
                ) => {}
            Err(source) => return Err(HostError::of_read(dir)(source)),
        }
    }
    Ok(PathBuf::from("/"))
}

#[cfg(test)]
mod tests {
    use nodepulse_core::subjects::signals::STORAGE;
    use nodepulse_linux::host::scratch::Scratch;

    use super::*;

    #[test]
    fn a_missing_directory_is_on_the_file_system_of_its_nearest_ancestor() {
        let dir = Scratch::new();
        dir.mkdir("var/lib");
        dir.write("var/lib/file", "");
        let rows = [
            ("var/lib", "var/lib"),
            ("var/lib/kubelet", "var/lib"),
            ("var/lib/kubelet/pods", "var/lib"),
            // A file in the way.
            ("var/lib/file/pods", "var/lib"),
            ("opt/kubelet", ""),
        ];
        for (directory, expected) in rows {
            let found = existing(&dir.path().join(directory));
            let found = found.unwrap_or_else(|err| panic!("{directory}: {err}"));
            assert_eq!(found, dir.path().join(expected), "{directory}");
        }
        assert_eq!(existing(Path::new("relative")).unwrap(), Path::new("/"));
    }

    #[test]
    fn a_directory_that_cannot_be_read_has_no_sample() {
        let dir = Scratch::new();
        let link = dir.path().join("loop");
        std::os::unix::fs::symlink(&link, &link).unwrap();
        let of = |nodefs: PathBuf, images: &str| Directories {
            root: dir.root(),
            nodefs,
            images: Images::Configured(images.into()),
            has_pods: true,
        };
        let sample = of(link.join("kubelet"), "/images").sample(Some(Vec::new()));
        assert_eq!(sample, StorageSample::missing());

        let volumes = Some(vec!["a".to_owned()]);
        let absent = Signal::IMAGEFS.map(Sample::Absent);
        let missing = Signal::IMAGEFS.map(Sample::Missing);
        dir.mkdir("images");
        std::os::unix::fs::symlink("circle", dir.path().join("circle")).unwrap();
        for (images, expected) in [("/none", absent), ("/images", absent), ("/circle", missing)] {
            let sample = of(dir.path().to_owned(), images).sample(volumes.clone());
            assert!(sample.capacity.is_some());
            assert_eq!(sample.volumes, volumes);
            let signals: Vec<_> = sample.samples.iter().map(Sample::signal).collect();
            assert_eq!(signals, STORAGE);
            assert!(matches!(sample.samples[0], Sample::Read(_)));
            assert_eq!(sample.samples[2..], expected, "{images}");
        }
    }
}
