//! The memory of a cgroup by kind, and its largest processes.

use nodepulse_core::escape::escape;
use nodepulse_core::reading::memory_use::{LargestProcesses, MemorySplit, ProcessSize};
use nodepulse_core::units::{Bytes, Pid};

use super::{Hierarchy, Version, ancestors, walk};
use crate::host::{HostError, field};
use crate::host::{HostFile, HostRoot, first_processes, parse_u64, present};

/// Maximum number of processes that are compared, which takes about 10 ms.
pub const MOST_COMPARED: usize = 1000;
/// Maximum number of levels below the cgroup whose processes are compared: the containers of a pod,
/// and the cgroups that these create.
const LEVELS: usize = 4;
/// Maximum number of cgroups whose processes are listed.
const MOST_CGROUPS: usize = 100;

/// Returns the memory that is charged to a cgroup and those below it; `None` if it was removed.
///
/// Version 1 has no counter of kernel memory in `memory.stat`, but separate files, which can be
/// absent.
pub fn split(
    memory: &Hierarchy,
    cgroup: &str,
    buf: &mut Vec<u8>,
) -> Result<Option<MemorySplit>, HostError> {
    let stat = memory.file(cgroup, "memory.stat");
    if present(stat.read(buf))?.is_none() {
        return Ok(None);
    }
    let keys = match memory.version {
        Version::V1 => [b"total_rss".as_slice(), b"total_cache", b"total_shmem"],
        Version::V2 => [b"anon".as_slice(), b"file", b"shmem"],
    };
    let counters = keys.map(|key| field(buf, key));
    let [Some(anon), Some(file), shmem] = counters else {
        return Err(stat.malformed("required counter"));
    };
    // Linux before 4.20 has no `total_shmem`.
    let shmem = shmem.unwrap_or_default();
    let in_stat = [b"kernel".as_slice(), b"sock"].map(|key| field(buf, key));
    let [kernel, sockets] = match memory.version {
        Version::V1 => [
            "memory.kmem.usage_in_bytes",
            "memory.kmem.tcp.usage_in_bytes",
        ]
        .map(|name| memory.file(cgroup, name).number(buf).ok()),
        Version::V2 => in_stat,
    };
    Ok(Some(MemorySplit {
        anon: Bytes::from_bytes(anon),
        file: Bytes::from_bytes(file.saturating_sub(shmem)),
        shmem: Bytes::from_bytes(shmem),
        kernel: kernel.map(Bytes::from_bytes),
        sockets: sockets.map(Bytes::from_bytes),
    }))
}

/// Returns `true` if a split contains memory that is no longer charged, by more than an eighth: the
/// kernel adds up counters up to 2 s late. `false` if the usage cannot be read.
pub fn is_outdated(split: &MemorySplit, memory: &Hierarchy, cgroup: &str) -> bool {
    let usage = memory.file(cgroup, memory.version.memory_usage());
    let usage = usage.number(&mut Vec::new());
    let counted = [split.anon, split.file, split.shmem].map(Bytes::get);
    let counted = counted.into_iter().fold(0, u64::saturating_add);
    usage.is_ok_and(|usage| usage.saturating_add(usage / 8) < counted)
}

/// Returns at most `most` processes with the largest resident memory, of at most [`MOST_COMPARED`].
/// A page has `page` bytes. Skips a process that ends meanwhile or that is not visible in the PID
/// namespace of this process. Returns no processes if the cgroup was removed. Leaves out the
/// processes of `dying`, and those of the cgroups below it.
///
/// # Cost
///
/// One small file for each process that is compared, and one for each cgroup.
pub fn largest_processes(
    root: &HostRoot,
    memory: &Hierarchy,
    (cgroup, dying): (&str, Option<&str>),
    page: u64,
    most: usize,
) -> LargestProcesses {
    let mut buf = Vec::new();
    let (mut pids, mut cgroups, mut is_partial) = (Vec::new(), 0, false);
    let walked = walk::each_below(memory, cgroup, LEVELS, |_, dir, path| {
        if dying.is_some_and(|dying| ancestors(path).any(|above| above == dying)) {
            return true;
        }
        pids.extend(first_processes(dir, &mut buf).into_iter().flatten());
        cgroups += 1;
        is_partial = MOST_COMPARED < pids.len() || cgroups == MOST_CGROUPS;
        !is_partial
    });
    if walked.is_err() {
        return LargestProcesses::default();
    }
    pids.truncate(MOST_COMPARED);
    let sizes = pids.iter().filter_map(|pid| {
        let resident = resident(root, *pid, page, &mut buf)?;
        Some((resident, *pid))
    });
    let mut sizes: Vec<_> = sizes.collect();
    sizes.sort_by_key(|(resident, _)| std::cmp::Reverse(*resident));
    let compared = sizes.len();
    let named = sizes.into_iter().take(most).filter_map(|(resident, pid)| {
        root.read(format!("proc/{pid}/comm"), &mut buf).ok()?;
        Some(ProcessSize {
            pid: Pid(pid),
            comm: escape(buf.trim_ascii_end()),
            resident,
        })
    });
    LargestProcesses {
        largest: named.collect(),
        compared,
        is_partial,
    }
}

/// Returns `true` if a process that was killed can still have memory, because a thread of it has
/// not ended. Its `statm` is 0 before the memory is released (`exit_mm()` in
/// [kernel/exit.c](https://github.com/torvalds/linux/blob/v6.12/kernel/exit.c)).
pub fn has_memory(root: &HostRoot, pid: Pid) -> bool {
    /// Index of `num_threads` in the fields from `state` on (`proc_pid_stat(5)`).
    const THREADS: usize = 17;

    let mut buf = Vec::new();
    if root.read(format!("proc/{pid}/stat"), &mut buf).is_err() {
        return false;
    }
    // The name can contain any bytes, including a parenthesis.
    let after = buf.rsplit(|&b| b == b')').next().unwrap_or_default();
    let mut fields = after.trim_ascii().split(|&b| b == b' ');
    let has_ended = matches!(fields.next(), Some(b"Z" | b"X"));
    let threads = fields.nth(THREADS - 1).and_then(parse_u64);
    !has_ended || threads.is_some_and(|threads| threads > 1)
}

/// Returns the second field of `statm`, for which the kernel takes no lock; `None` if the process
/// has ended or has released its memory.
fn resident(root: &HostRoot, pid: u32, page: u64, buf: &mut Vec<u8>) -> Option<Bytes> {
    let file: HostFile = root.file(format!("proc/{pid}/statm"));
    file.read(buf).ok()?;
    let pages = parse_u64(buf.split(|&b| b == b' ').nth(1)?)?;
    (pages > 0).then(|| Bytes::from_pages(pages, page))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::scratch::Scratch;

    const V1_STAT: &str = include_str!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/fixtures/proc/debian12-6.18/sys/fs/cgroup/memory/memory.stat"
    ));

    fn hierarchy(dir: &Scratch, version: Version) -> Hierarchy {
        Hierarchy {
            mount: dir.path().join("cg"),
            version,
        }
    }

    fn process(dir: &Scratch, pid: u32, pages: u32) {
        dir.write(
            &format!("proc/{pid}/statm"),
            format!("9999 {pages} 1 1 0 1 0\n"),
        );
        dir.write(&format!("proc/{pid}/comm"), format!("p{pid}\n"));
    }

    fn largest(dir: &Scratch, most: usize) -> (Vec<String>, usize, bool) {
        largest_without(dir, None, most)
    }

    fn largest_without(
        dir: &Scratch,
        dying: Option<&str>,
        most: usize,
    ) -> (Vec<String>, usize, bool) {
        let memory = hierarchy(dir, Version::V2);
        let found = largest_processes(&dir.root(), &memory, ("/pod", dying), 4096, most);
        let text = |one: ProcessSize| format!("{} {} {}", one.pid, one.comm, one.resident);
        let named = found.largest.into_iter().map(text).collect();
        (named, found.compared, found.is_partial)
    }

    #[test]
    fn memory_is_split_by_kind_in_both_versions() {
        let dir = Scratch::new();
        let mut buf = Vec::new();
        let bytes = Bytes::from_bytes;
        dir.write(
            "cg/pod/memory.stat",
            "anon 100\nfile 90\nkernel 30\nkernel_stack 7\nsock 5\nshmem 20\nfile_mapped 3\n",
        );
        let expected = MemorySplit {
            anon: bytes(100),
            file: bytes(70),
            shmem: bytes(20),
            kernel: Some(bytes(30)),
            sockets: Some(bytes(5)),
        };
        let v2 = hierarchy(&dir, Version::V2);
        assert_eq!(split(&v2, "/pod", &mut buf).unwrap(), Some(expected));
        assert_eq!(split(&v2, "/gone", &mut buf).unwrap(), None);
        // The format is that of kernels before Linux 5.18.
        dir.write(
            "cg/pod/memory.stat",
            "anon 100\nfile 90\nsock 5\nshmem 20\n",
        );
        let found = split(&v2, "/pod", &mut buf).unwrap().unwrap();
        assert_eq!(
            found,
            MemorySplit {
                kernel: None,
                ..expected
            }
        );
        dir.write("cg/pod/memory.stat", "\u{0}garbage");
        assert!(split(&v2, "/pod", &mut buf).is_err());

        dir.write("cg/ctr/memory.stat", V1_STAT);
        dir.write("cg/ctr/memory.kmem.usage_in_bytes", "4096\n");
        let total = |key: &[u8]| field(V1_STAT.as_bytes(), key).unwrap();
        let expected = MemorySplit {
            anon: bytes(total(b"total_rss")),
            file: bytes(total(b"total_cache") - total(b"total_shmem")),
            shmem: bytes(total(b"total_shmem")),
            kernel: Some(bytes(4096)),
            sockets: None,
        };
        let v1 = hierarchy(&dir, Version::V1);
        assert_eq!(split(&v1, "/ctr", &mut buf).unwrap(), Some(expected));
    }

    #[test]
    fn a_split_of_more_than_is_charged_is_outdated() {
        let dir = Scratch::new();
        let mib = |n: u64| Bytes::from_kib(n << 10);
        let split = MemorySplit {
            anon: mib(8),
            file: mib(4),
            shmem: mib(4),
            kernel: Some(mib(100)),
            sockets: Some(mib(100)),
        };
        for (version, file) in [
            (Version::V1, "memory.usage_in_bytes"),
            (Version::V2, "memory.current"),
        ] {
            let memory = hierarchy(&dir, version);
            assert!(!is_outdated(&split, &memory, "/pod"), "not known");
            for (usage, expected) in [(0, true), (14, true), (15, false), (99, false)] {
                dir.write(&format!("cg/pod/{file}"), format!("{}\n", usage << 20));
                assert_eq!(is_outdated(&split, &memory, "/pod"), expected, "{usage}");
            }
            dir.write(&format!("cg/pod/{file}"), format!("{}\n", u64::MAX));
            assert!(!is_outdated(&split, &memory, "/pod"));
        }
    }

    #[test]
    fn a_killed_process_has_memory_until_its_last_thread_has_ended() {
        let dir = Scratch::new();
        let has = |pid| has_memory(&dir.root(), Pid(pid));
        assert!(!has(1), "reaped");
        let rows = [
            ("R", 1, true),
            ("D", 1, true),
            ("Z", 1, false),
            ("Z", 2, true),
            ("X", 0, false),
        ];
        for (state, threads, expected) in rows {
            let stat = format!(
                "1 (a) Z 1 (b) {state} 1 1 1 0 -1 4228108 33 0 0 0 0 6 0 0 20 0 {threads} 0 99\n"
            );
            dir.write("proc/1/stat", stat);
            assert_eq!(has(1), expected, "{state} {threads}");
        }
        for garbage in ["", "1 (a", "1 (a)", "\u{0}"] {
            dir.write("proc/1/stat", garbage);
            assert!(has(1), "{garbage:?}");
        }
    }

    #[test]
    fn the_largest_processes_of_all_containers_are_found() {
        let dir = Scratch::new();
        for (pid, pages) in [(1, 10), (2, 30), (3, 0), (4, 20), (5, 5)] {
            process(&dir, pid, pages);
        }
        dir.write("cg/pod/cgroup.procs", "");
        // The processes are not visible here, ended, and exiting.
        dir.write("cg/pod/a/cgroup.procs", "0\n1\n77\n3\n");
        dir.write("cg/pod/b/deeper/cgroup.procs", "2\n4\n5\n");
        let named = ["2 p2 120.0Ki", "4 p4 80.0Ki", "1 p1 40.0Ki"].map(str::to_owned);
        assert_eq!(largest(&dir, 3), (named.to_vec(), 4, false));
        assert_eq!(largest(&dir, 1), (named[..1].to_vec(), 4, false));
        let without = |dying| largest_without(&dir, Some(dying), 3);
        assert_eq!(without("/pod/b"), (named[2..].to_vec(), 1, false));
        assert_eq!(without("/pod"), (Vec::new(), 0, false));
        std::fs::remove_dir_all(dir.path().join("cg/pod")).unwrap();
        assert_eq!(largest(&dir, 3), (Vec::new(), 0, false));
    }

    #[test]
    fn of_ten_thousand_processes_a_part_is_compared() {
        let dir = Scratch::new();
        let list: Vec<String> = (1..=10_000).map(|pid| pid.to_string()).collect();
        dir.write("cg/pod/cgroup.procs", list.join("\n"));
        for pid in 1..=1002 {
            process(&dir, pid, pid);
        }
        let (named, compared, is_partial) = largest(&dir, 1);
        assert_eq!((compared, is_partial), (MOST_COMPARED, true));
        assert!(named[0].starts_with("1000 "), "{named:?}");
        dir.write("cg/pod/cgroup.procs", list[..1000].join("\n"));
        let (_, compared, is_partial) = largest(&dir, 1);
        assert_eq!((compared, is_partial), (1000, false), "exactly so many");
    }

    #[test]
    fn of_ten_thousand_cgroups_a_part_is_listed() {
        let dir = Scratch::new();
        for n in 0..=MOST_CGROUPS {
            dir.mkdir(&format!("cg/pod/{n}"));
        }
        assert_eq!(largest(&dir, 1), (Vec::new(), 0, true));
    }
}
