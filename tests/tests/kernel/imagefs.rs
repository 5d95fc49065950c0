//! Tests the file system of the container images, with real file systems below the root of a
//! simulated node.
//!
//! Always compiled; run with the feature `kernel`, as root, since they mount. Serially, because of
//! loop devices.
#![cfg_attr(
    not(feature = "kernel"),
    expect(dead_code, reason = "runs with the feature `kernel`")
)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::statvfs::statvfs;
use nodepulse_tests::SOON;
use nodepulse_tests::api_server::ApiServer;
use nodepulse_tests::cri_server::CriServer;
use nodepulse_tests::host_root::MadeUpHost;
use nodepulse_tests::hung_files::HungDirectory;
use nodepulse_tests::node::{COMPANION, COMPANION_PERMISSIONS, Node, Running, in_memory, pass};
use nodepulse_tests::provoke::disk::Mounted;
use nodepulse_tests::view::View;
use serde_json::{Value, json};
use tempfile::tempdir;

/// Two sampling periods.
const SAMPLED: Duration = Duration::from_secs(20);
const TRANSITION: Duration = Duration::from_mins(5);
const IMAGES: &str = "var/lib/containerd";
const MI: u64 = 1 << 20;

/// A companion on a Node without conditions.
struct Companion {
    api: Arc<ApiServer>,
    host: Arc<MadeUpHost>,
    node: Running,
}

impl Companion {
    /// Starts it with these directories, and the default thresholds except for nodefs, which is
    /// this machine's.
    async fn start(directories: &[&str]) -> Self {
        Self::with(directories, |_, node| node).await
    }

    async fn with(directories: &[&str], configure: impl FnOnce(&Path, Node) -> Node) -> Self {
        let host = Arc::new(MadeUpHost::calm());
        for directory in directories {
            fs::create_dir_all(host.path().join(directory)).unwrap();
        }
        Self::on(host, configure).await
    }

    async fn on(host: Arc<MadeUpHost>, configure: impl FnOnce(&Path, Node) -> Node) -> Self {
        let api = in_memory();
        api.grant_all(COMPANION, &COMPANION_PERMISSIONS);
        api.put_object(json!({
            "apiVersion": "v1", "kind": "Node", "metadata": { "name": "worker-1" },
        }));
        let node = Node::companion("worker-1").host(Arc::clone(&host));
        let node = configure(host.path(), node).start(&api);
        let started = Self { api, host, node };
        started.becomes("False", SOON).await;
        started
    }

    /// Waits until `DiskSpaceLow` has this status.
    async fn becomes(&self, status: &str, deadline: Duration) -> Value {
        let view = View::of(&self.api, "worker-1");
        view.becomes("DiskSpaceLow", status, deadline).await.0
    }

    fn status(&self) -> String {
        View::of(&self.api, "worker-1").status("DiskSpaceLow")
    }

    fn path(&self, below: &str) -> std::path::PathBuf {
        self.host.path().join(below)
    }

    async fn signal(&self, family: &str, signal: &str) -> Option<f64> {
        let read = self.node.scrape().await;
        read.value(family, &[("signal", signal)])
    }
}

/// Writes to a file in `dir` until this share of its file system is available.
fn fill(dir: &Path, percent_left: u64) {
    let stat = statvfs(dir).unwrap();
    let left = stat.blocks() * percent_left / 100;
    let blocks = stat.blocks_available().checked_sub(left).unwrap();
    let bytes = usize::try_from(blocks * stat.fragment_size()).unwrap();
    fs::write(dir.join("filler"), vec![1; bytes]).unwrap();
}

/// The link refers to another directory outside the node's root.
#[cfg_attr(feature = "kernel", tokio::test(start_paused = true))]
async fn disk_space_is_low_if_images_fill_their_file_system() {
    let host = Arc::new(MadeUpHost::calm());
    let (images, backing) = (host.path().join("data/images"), tempdir().unwrap());
    fs::create_dir_all(&images).unwrap();
    fs::create_dir_all(host.path().join("var/lib")).unwrap();
    symlink("/data/images", host.path().join(IMAGES)).unwrap();
    let _mounted = Mounted::ext4(&images, backing.path(), 64 * MI).unwrap();
    let node = Companion::on(host, |_, node| node).await;

    fill(&images, 14);
    pass(SAMPLED).await;
    assert_eq!(node.status(), "False", "14 % are more than 12 %");
    fill_again(&images, 10);
    let condition = node.becomes("True", SAMPLED).await;
    assert_eq!(condition["reason"], "LowSpace");
    let expected = "imagefs.available has been below 12% within the transition period";
    assert_eq!(condition["message"], expected);
    let value = node
        .signal("nodepulse_signal_value", "imagefs.available")
        .await;
    let threshold = node
        .signal("nodepulse_signal_threshold", "imagefs.available")
        .await;
    assert!(value < threshold, "{value:?} of {threshold:?}");
    assert!(value.is_some());
    let explained = node.node.get("/v1/explain").await.body;
    let because = "imagefs.available was ";
    assert!(explained.contains(because), "{explained}");

    fs::remove_file(images.join("filler")).unwrap();
    pass(TRANSITION - SAMPLED).await;
    assert_eq!(node.status(), "True", "for the transition period");
    node.becomes("False", SAMPLED * 2).await;
    node.node.stop().await.unwrap();
}

/// Fills the present file system in the same way.
fn fill_again(dir: &Path, percent_left: u64) {
    fs::remove_file(dir.join("filler")).unwrap();
    fill(dir, percent_left);
}

#[cfg_attr(feature = "kernel", tokio::test(start_paused = true))]
async fn inodes_of_the_images_are_counted() {
    let node = Companion::start(&[IMAGES]).await;
    let images = node.path(IMAGES);
    let _mounted = Mounted::tmpfs(&images, "size=16m,nr_inodes=200").unwrap();
    pass(SAMPLED).await;
    assert_eq!(node.status(), "False");
    for n in 0..192 {
        fs::write(images.join(n.to_string()), "").unwrap();
    }
    let condition = node.becomes("True", SAMPLED).await;
    assert_eq!(condition["reason"], "LowInodes");
    node.node.stop().await.unwrap();
}

/// Otherwise the same space would have two thresholds.
#[cfg_attr(feature = "kernel", tokio::test(start_paused = true))]
async fn images_on_nodefs_are_counted_once() {
    let host = Arc::new(MadeUpHost::calm());
    let var = host.path().join("var");
    fs::create_dir_all(&var).unwrap();
    let _mounted = Mounted::tmpfs(&var, "size=16m").unwrap();
    fs::create_dir_all(host.path().join(IMAGES)).unwrap();
    fs::create_dir_all(var.join("lib/kubelet")).unwrap();
    fill(&var, 5);
    let node = Companion::on(host, |_, node| node).await;
    pass(SAMPLED).await;
    assert_eq!(node.status(), "False", "nodefs has no threshold here");
    let nodefs = node
        .signal("nodepulse_signal_value", "nodefs.available")
        .await;
    assert!(nodefs.is_some());
    let imagefs = node
        .signal("nodepulse_signal_value", "imagefs.available")
        .await;
    assert_eq!(imagefs, None);
    node.node.stop().await.unwrap();
}

#[cfg_attr(feature = "kernel", tokio::test(start_paused = true))]
async fn a_file_system_that_is_mounted_later_counts_until_it_is_unmounted() {
    const CONFIGURED: &str = "srv/images";
    let configured = |_: &Path, node: Node| {
        node.config(|overrides| overrides.imagefs_directory = Some(format!("/{CONFIGURED}")))
    };
    let node = Companion::with(&[IMAGES], configured).await;
    let (images, other) = (node.path(CONFIGURED), node.path(IMAGES));
    // A full file system at another directory does not count.
    let _other = Mounted::tmpfs(&other, "size=16m").unwrap();
    fill(&other, 1);
    pass(SAMPLED).await;
    assert_eq!(
        node.status(),
        "False",
        "the configured directory does not exist"
    );

    fs::create_dir_all(&images).unwrap();
    pass(SAMPLED).await;
    assert_eq!(node.status(), "False", "it is on nodefs");
    let mounted = Mounted::tmpfs(&images, "size=16m").unwrap();
    fill(&images, 1);
    node.becomes("True", SAMPLED).await;

    drop(mounted);
    pass(TRANSITION + SAMPLED).await;
    assert_eq!(node.status(), "False");
    for family in ["nodepulse_signal_value", "nodepulse_signal_threshold"] {
        let left = node.signal(family, "imagefs.available").await;
        assert_eq!(left, None, "{family}");
    }
    node.node.stop().await.unwrap();
}

/// Advances the time also while a thread works.
async fn pass_anyway(time: Duration) {
    const STEP: Duration = Duration::from_millis(50);
    for _ in 0..time.as_millis() / STEP.as_millis() {
        tokio::time::advance(STEP).await;
    }
}

#[cfg_attr(feature = "kernel", tokio::test(start_paused = true))]
async fn images_that_do_not_respond_make_the_condition_unknown() {
    let node = Companion::start(&[IMAGES]).await;
    let images = node.path(IMAGES);
    let _mounted = Mounted::tmpfs(&images, "size=64g").unwrap();
    pass(SAMPLED).await;
    let found = node
        .signal("nodepulse_signal_value", "imagefs.available")
        .await;
    assert!(found.is_some());

    let hung = HungDirectory::over(&images);
    pass_anyway(Duration::from_secs(60)).await;
    let condition = node.becomes("Unknown", SAMPLED).await;
    assert_eq!(condition["reason"], "SourceUnavailable");
    let message = condition["message"].as_str().unwrap();
    assert!(message.contains("imagefs.available"), "{message}");
    hung.answers();
    node.becomes("False", SAMPLED * 2).await;
    node.node.stop().await.unwrap();
}

/// In node mode the runtime names the directory, unless it is configured.
#[cfg_attr(feature = "kernel", tokio::test(start_paused = true))]
async fn the_runtime_names_the_file_system_of_the_images() {
    //  imagefsDirectory, whether the runtime's directory counts
    for (configured, counts) in [(None, true), (Some("/var/lib"), false)] {
        let host = Arc::new(MadeUpHost::calm());
        let (images, usual) = (host.path().join("data/images"), host.path().join(IMAGES));
        fs::create_dir_all(&images).unwrap();
        fs::create_dir_all(&usual).unwrap();
        let _mounted = Mounted::tmpfs(&images, "size=16m").unwrap();
        // No part of the agent uses the usual directory.
        let _usual = Mounted::tmpfs(&usual, "size=16m").unwrap();
        fill(&usual, 1);
        let runtime = CriServer::ready();
        runtime.imagefs("/data/images");
        let api = in_memory();
        let node = Node::named("worker-1").host(host).runtime(&runtime);
        let node = node.config(|overrides| {
            overrides.imagefs_directory = configured.map(str::to_owned);
        });
        let node = node.start(&api);
        let view = View::of(&api, "worker-1");
        view.becomes("Ready", "True", SOON).await;
        assert_eq!(
            view.status("DiskPressure"),
            "False",
            "from the first report on"
        );
        fill(&images, 10);
        pass(SAMPLED * 2).await;
        let expected = if counts { "True" } else { "False" };
        assert_eq!(view.status("DiskPressure"), expected, "{configured:?}");
        node.stop().await.unwrap();
    }
}
