//! Defines workloads on block volumes of a pod, in a virtual machine: its host makes their disks
//! slow, or fail.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt as _, symlink};
use std::path::Path;
use std::time::Duration;

use super::site::{POD_WITH_VOLUME, pod_directory};
use super::{Expected, Form, Pace, Prepared, Site, Workload, workload};
use crate::vm::ask::BAD_BLOCK;
use crate::vm::disk;

/// The disk with an unreadable block, and the one that is always throttled.
const FAILING: &str = "error";
const THROTTLED: &str = "slow";
/// Number of errors that makes a disk failing.
const ERRORS: usize = 3;
/// Time after the third error to find the pod and send its Event, under emulation.
const AFTER_ERRORS: Duration = Duration::from_secs(3);

pub(super) fn workloads() -> Vec<Workload> {
    vec![errors(), throttled()]
}

fn of_pod(reason: &'static str, within: Duration) -> Expected {
    Expected::PodEvent {
        reason,
        pod: POD_WITH_VOLUME,
        within,
    }
}

fn errors() -> Workload {
    let expected = of_pod("VolumeErrors", AFTER_ERRORS);
    workload("volume-errors", Form::Short, expected, |site| {
        let node = disk(FAILING)?;
        add_volume(site, &node)?;
        Ok(Prepared::new(move |control| {
            let file = File::open(&node)?;
            for _ in 0..ERRORS {
                control.begins();
                let mut block = [0; 512];
                file.read_exact_at(&mut block, BAD_BLOCK)
                    .expect_err("the block cannot be read");
            }
            control.until_noticed();
            Ok(format!("{ERRORS} reads failed"))
        }))
    })
}

fn throttled() -> Workload {
    let expected = of_pod("SlowVolume", Pace::MACHINE.slow_within());
    workload("throttled-volume", Form::Short, expected, |site| {
        let node = disk(THROTTLED)?;
        add_volume(site, &node)?;
        Ok(Prepared::new(move |control| {
            let load = ["mixed", &node.display().to_string(), "4", "60"];
            let load = control.site().load(POD_WITH_VOLUME, &load)?;
            control.begins();
            control.until_noticed();
            drop(load);
            Ok(String::new())
        }))
    })
}

/// Adds a volume with `volumeMode: Block`, like the kubelet.
fn add_volume(site: &Site, node: &Path) -> io::Result<()> {
    let volumes = format!(
        "{}/volumeDevices/kubernetes.io~local-volume",
        pod_directory()
    );
    let volumes = site.directory().join(volumes);
    fs::create_dir_all(&volumes)?;
    symlink(node, volumes.join("data"))
}
