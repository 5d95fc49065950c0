//! Finds the pods that use most memory over their request.

use std::path::Path;

use nodepulse_core::reading::pods::{PodMemory, QosClass};
use nodepulse_core::units::Bytes;

use super::memory::CgroupMemory;
use super::pods::POD_LEVELS;
use super::{Hierarchy, walk};
use crate::host::meminfo::MeminfoFile;
use crate::host::{HostError, HostFile, HostRoot, first_processes};

/// Number of levels below the cgroup of a container that are searched for a process.
const CONTAINER_LEVELS: usize = 2;

/// Returns at most `most` pods that use more memory than they request, the largest excess first.
///
/// `class` returns the class of the pod whose cgroup has the given path, and `None` for any other
/// cgroup. The request is that of the containers that run. It is derived from `oom_score_adj`,
/// which the kubelet sets to 1000 minus the request in thousandths of the node's memory, so it is
/// accurate to 0.1 % of that:
/// <https://github.com/kubernetes/kubernetes/blob/v1.33.0/pkg/kubelet/qos/policy.go#L40-L101>
///
/// A Guaranteed pod cannot use more than it requests. A node-critical pod has the `oom_score_adj`
/// of a Guaranteed one, so its request is unknown; both are left out.
///
/// # Cost
///
/// One file for each pod, and some more for the largest.
pub fn over_request(
    root: &HostRoot,
    memory: &Hierarchy,
    pods: &str,
    class: impl Fn(&str) -> Option<QosClass>,
    most: usize,
) -> Result<Vec<PodMemory>, HostError> {
    let mut buf = Vec::new();
    let capacity = MeminfoFile::new(root).read(&mut buf)?.total;
    let mut largest: Vec<PodMemory> = Vec::new();
    for (charged, cgroup, class) in by_size(memory, pods, class)? {
        let smallest = largest.get(most.saturating_sub(1)).map(PodMemory::over);
        // No pod that follows can exceed its request by more.
        if smallest.is_some_and(|smallest| charged <= smallest) {
            break;
        }
        let request = match class {
            QosClass::Guaranteed => None,
            QosClass::BestEffort => Some(Bytes::default()),
            QosClass::Burstable => request_of(root, memory, &cgroup, capacity, &mut buf),
        };
        let used = CgroupMemory::new(memory, &cgroup).working_set(&mut buf);
        // A pod that ends meanwhile is skipped.
        let (Some(request), Ok(used)) = (request, used) else {
            continue;
        };
        largest.push(PodMemory {
            cgroup,
            class,
            used,
            request,
        });
        largest.retain(|pod| pod.over() > Bytes::default());
        largest.sort_by_key(|pod| std::cmp::Reverse(pod.over()));
        largest.truncate(most);
    }
    Ok(largest)
}

/// Returns all pods with the memory that is charged to them, the largest first.
fn by_size(
    memory: &Hierarchy,
    pods: &str,
    class: impl Fn(&str) -> Option<QosClass>,
) -> Result<Vec<(Bytes, String, QosClass)>, HostError> {
    let usage = memory.version.memory_usage();
    let (mut found, mut buf) = (Vec::new(), Vec::new());
    walk::each_below(memory, pods, POD_LEVELS, |_, dir, path| {
        if let Some(class) = class(path)
            && let Ok(charged) = HostFile::at(dir.join(usage)).number(&mut buf)
        {
            found.push((Bytes::from_bytes(charged), path.to_owned(), class));
        }
        true
    })?;
    found.sort_by_key(|(charged, ..)| std::cmp::Reverse(*charged));
    Ok(found)
}

/// Returns the request of a Burstable pod; `None` if unknown.
fn request_of(
    root: &HostRoot,
    memory: &Hierarchy,
    pod: &str,
    capacity: Bytes,
    buf: &mut Vec<u8>,
) -> Option<Bytes> {
    let mut containers = Vec::new();
    let walked = walk::each_below(memory, pod, 1, |_, _, path| {
        containers.push(path.to_owned());
        true
    });
    walked.ok()?;
    let adjustments = containers.iter().filter(|path| *path != pod);
    let mut adjustments = adjustments.filter_map(|path| adjustment(root, memory, path, buf));
    let request = adjustments.try_fold(None, |sum: Option<u64>, adjustment| {
        let thousandths = match adjustment {
            // This is the container of the pod's namespaces, which requests nothing.
            ..=-998 => return Some(sum),
            // This is a node-critical pod.
            -997..=0 => return None,
            // The kubelet avoids 1000, so 999 is also a container without a request.
            999.. => 0,
            1..999 => 1000 - adjustment.unsigned_abs(),
        };
        Some(Some(sum.unwrap_or_default().saturating_add(thousandths)))
    })??;
    let bytes = u128::from(capacity.get()) * u128::from(request) / 1000;
    Some(Bytes::from_bytes(u64::try_from(bytes).unwrap_or(u64::MAX)))
}

/// Returns `oom_score_adj` of the first process of a container.
fn adjustment(
    root: &HostRoot,
    memory: &Hierarchy,
    container: &str,
    buf: &mut Vec<u8>,
) -> Option<i64> {
    let mut first = None;
    let walked = walk::each_below(memory, container, CONTAINER_LEVELS, |_, dir, _| {
        first = first_process(dir, buf);
        first.is_none()
    });
    walked.ok()?;
    let file = format!("proc/{}/oom_score_adj", first?);
    root.read(file, buf).ok()?;
    str::from_utf8(buf.trim_ascii()).ok()?.parse().ok()
}

fn first_process(dir: &Path, buf: &mut Vec<u8>) -> Option<u32> {
    first_processes(dir, buf).into_iter().flatten().next()
}

#[cfg(test)]
mod tests {
    use super::super::Version;
    use super::*;
    use crate::host::scratch::Scratch;

    /// 1000 GiB, so that a thousandth is 1 GiB.
    const MEMINFO: &str = "MemTotal: 1048576000 kB\n";
    const GIB: u64 = 1 << 30;

    fn class(path: &str) -> Option<QosClass> {
        let (above, name) = path.rsplit_once('/')?;
        name.strip_prefix("pod")?;
        Some(match above {
            "/kubepods" => QosClass::Guaranteed,
            "/kubepods/burstable" => QosClass::Burstable,
            _ => QosClass::BestEffort,
        })
    }

    struct Host {
        dir: Scratch,
        version: Version,
        next: u32,
    }

    impl Host {
        fn new(version: Version) -> Self {
            let dir = Scratch::new();
            dir.write("proc/meminfo", MEMINFO);
            dir.mkdir("cg/kubepods");
            Self {
                dir,
                version,
                next: 1,
            }
        }

        /// Creates a pod below `/kubepods` with `charged` GiB, of which `inactive` are inactive,
        /// and one process with each `oom_score_adj`, each in one container.
        fn pod(&mut self, path: &str, charged: u64, inactive: u64, adjustments: &[i64]) {
            let (usage, key) = match self.version {
                Version::V1 => ("memory.usage_in_bytes", "total_inactive_file"),
                Version::V2 => ("memory.current", "inactive_file"),
            };
            let pod = format!("cg/kubepods/{path}");
            let stat = format!("{key} {}\n", inactive * GIB);
            self.dir
                .write(&format!("{pod}/{usage}"), format!("{}\n", charged * GIB));
            self.dir.write(&format!("{pod}/memory.stat"), stat);
            self.dir.write(&format!("{pod}/cgroup.procs"), "");
            for adjustment in adjustments {
                let pid = self.next;
                self.next += 1;
                self.dir
                    .write(&format!("{pod}/c{pid}/cgroup.procs"), format!("{pid}\n"));
                self.dir.write(
                    &format!("proc/{pid}/oom_score_adj"),
                    format!("{adjustment}\n"),
                );
            }
        }

        fn largest(&self, most: usize) -> Vec<(String, u64, u64)> {
            let memory = super::super::tests::hierarchy(self.dir.path().join("cg"), self.version);
            let found = over_request(&self.dir.root(), &memory, "/kubepods", class, most);
            let gib = |bytes: Bytes| bytes.get() / GIB;
            let found = found.unwrap().into_iter();
            found
                .map(|pod| (pod.cgroup.clone(), gib(pod.used), gib(pod.request)))
                .collect()
        }
    }

    #[test]
    fn pods_are_ordered_by_how_much_they_use_over_their_request() {
        for version in [Version::V1, Version::V2] {
            let mut host = Host::new(version);
            host.pod("poda", 900, 0, &[-997]);
            host.pod("burstable/podb", 300, 100, &[-998, 950, 999]);
            host.pod("burstable/podc", 400, 0, &[600, 990]);
            host.pod("burstable/podd", 500, 0, &[-997]);
            host.pod("besteffort/pode", 100, 0, &[1000]);
            host.pod("besteffort/podf", 3, 0, &[1000]);
            let named =
                |class, pod, used, request| (format!("/kubepods/{class}/pod{pod}"), used, request);
            let all = [
                named("burstable", "b", 200, 50),
                named("besteffort", "e", 100, 0),
                named("besteffort", "f", 3, 0),
            ];
            assert_eq!(host.largest(5), all, "{version:?}");
            assert_eq!(host.largest(2), all[..2], "{version:?}");
            assert_eq!(host.largest(0), [], "{version:?}");
        }
    }

    #[test]
    fn a_pod_that_ends_while_it_is_read_is_skipped() {
        let mut host = Host::new(Version::V2);
        host.pod("burstable/podb", 300, 0, &[950]);
        host.pod("burstable/podc", 300, 0, &[950]);
        host.pod("besteffort/podd", 300, 0, &[]);
        let remove = |rel: &str| std::fs::remove_file(host.dir.path().join(rel)).unwrap();
        remove("proc/1/oom_score_adj");
        remove("cg/kubepods/besteffort/podd/memory.stat");
        assert_eq!(
            host.largest(5),
            [("/kubepods/burstable/podc".to_owned(), 300, 50)]
        );
    }

    #[test]
    fn the_request_is_that_of_the_kubelet_within_a_thousandth_of_the_memory() {
        //  oom_score_adj, request in GiB; `None`: unknown
        let rows: [(&[i64], Option<u64>); 8] = [
            (&[2], Some(998)),
            (&[3], Some(997)),
            (&[998], Some(2)),
            (&[999], Some(0)),
            (&[1000], Some(0)),
            (&[-998, 900, 800], Some(300)),
            (&[-998, -997], None),
            (&[-998], None),
        ];
        for (adjustments, expected) in rows {
            let mut host = Host::new(Version::V2);
            host.pod("burstable/podb", 2000, 0, adjustments);
            let found = host.largest(1).pop().map(|(_, _, request)| request);
            assert_eq!(found, expected, "{adjustments:?}");
        }
    }
}
