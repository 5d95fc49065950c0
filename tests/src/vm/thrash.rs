//! Measures on a node that thrashes and runs out of memory how long after a locked process has
//! observed the kill the API server has its Event, with the agent's memory locked and not.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::libc;
use nix::mount::{MsFlags, mount, umount};
use nix::sys::mman::{MlockAllFlags, mlockall, munlockall};
use nodepulse_core::clock::BootNanos;

use super::ask::ask;
use super::{disk, loopback, now};
use crate::api_server::ApiServer;
use crate::process::{Process, node_mode_of};
use crate::provoke::Provoke;
use crate::provoke::cgroup::CgroupTree;
use crate::view::{EVENTS, View};

const NODE: &str = "vm";
/// Path of the program in the initramfs, which is never evicted; it is copied to a disk.
const PROGRAM: &str = "/nodepulse";
const DIR: &str = "/node";
const COPY: &str = "/node/nodepulse";
/// Time limit under emulation.
const PATIENCE: Duration = Duration::from_mins(2);
/// Time after which the agent has locked its memory, ten seconds after its start.
const SETTLED: Duration = Duration::from_secs(60);
/// Maximum delay after the locked process.
const LATEST: Duration = Duration::from_secs(2);
/// Bytes that exceed the memory of the machine.
const ALL_MEMORY: u64 = 1 << 36;
const HOG: &str = "system.slice/hog.service";
const READERS: &str = "system.slice/readers.service";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Memory {
    Locked,
    Evictable,
}

impl Memory {
    pub(super) const ALL: [Self; 2] = [Self::Locked, Self::Evictable];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Locked => "thrash-locked",
            Self::Evictable => "thrash-evictable",
        }
    }
}

/// Uses all memory in a service, while others read from the disk that the agent's program is on.
pub(super) async fn reported(provoke: &Provoke, memory: Memory) -> io::Result<String> {
    loopback::up()?;
    let node = disk("node")?;
    let _disk = Mounted::new(&node)?;
    fs::copy(PROGRAM, COPY)?;
    nix::unistd::sync();
    fs::write("/proc/sys/vm/overcommit_memory", "1")?;
    let mut tree = CgroupTree::new("thrash")?;
    for cgroup in [HOG, READERS, "kubepods"] {
        tree.add(cgroup)?;
    }
    let api = ApiServer::start().await;
    let dir = tempfile::tempdir()?;
    let agent = started(&api, dir.path(), memory).await;
    let _locked = Locked::new()?;

    // Twenty requests per second, for which the readers and the agent's page faults compete.
    ask("slow", "node");
    let readers = provoke.thrash_in(&tree.dir(READERS), &node)?;
    let faults = major_faults(agent.id())?;
    let control = control()?;
    let (hog, in_hog) = (provoke.clone(), tree.dir(HOG));
    let eaten = tokio::task::spawn_blocking(move || hog.eat_in(&in_hog, ALL_MEMORY));
    let (pid, status) = eaten.await.map_err(io::Error::other)??;
    assert!(!status.success(), "the kernel killed it");
    let killed = control
        .join()
        .map_err(|_| io::Error::other("the locked process panicked"))??;
    let victim = pid.to_string();
    let is_reported = |api: &ApiServer| {
        let events = api.list(EVENTS);
        let messages = events.iter().filter_map(|event| event["message"].as_str());
        let mut words = messages.flat_map(|text| text.split(|c: char| !c.is_ascii_digit()));
        words.any(|word| word == victim).then(now)
    };
    let reported = api.wait_for(PATIENCE, "the Event of the kill", is_reported);
    let reported = reported.await;
    let faults = major_faults(agent.id())? - faults;
    drop(readers);
    ask("release", "node");
    let after = reported.since(killed);
    let result = format!(
        "the Event came {} ms after a locked process saw the kill; {faults} major page faults",
        after.as_millis()
    );
    assert!(memory == Memory::Evictable || after <= LATEST, "{result}");
    agent.terminate();
    assert_eq!(agent.ends(PATIENCE).await.code, Some(0));
    Ok(result)
}

async fn started(api: &ApiServer, dir: &Path, memory: Memory) -> Process {
    let kubeconfig = api.node_kubeconfig(dir, NODE).display().to_string();
    let further = [
        ["--cgroup-root", "/thrash"],
        ["--eviction-hard", "memory.available<1Mi"],
        ["--kubeconfig", &kubeconfig],
    ];
    let args = node_mode_of(NODE, "127.0.0.1", further.as_flattened());
    let agent = match memory {
        Memory::Locked => Process::start_program(Path::new(COPY), args),
        Memory::Evictable => {
            let words = ["unlocked", COPY].map(str::to_owned);
            Process::start_program(Path::new("/provoke"), words.into_iter().chain(args))
        }
    };
    let view = View::of(api, NODE);
    view.becomes("Ready", "True", PATIENCE).await;
    view.settled(PATIENCE).await;
    let locked = format!("locked={}", memory == Memory::Locked);
    agent.wait_for_line(&locked, SETTLED).await;
    agent
}

/// Waits in this process, which is locked, until the kernel has killed one more; returns the time.
fn control() -> io::Result<JoinHandle<io::Result<BootNanos>>> {
    let file = fs::File::open("/proc/vmstat")?;
    let mut text = vec![0; 16 << 10];
    let mut kills = move || -> io::Result<u64> {
        let len = file.read_at(&mut text, 0)?;
        let text = String::from_utf8_lossy(text.get(..len).unwrap_or_default());
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        count
            .and_then(|count| count.parse().ok())
            .ok_or_else(|| io::Error::other("no oom_kill in /proc/vmstat"))
    };
    let before = kills()?;
    Ok(thread::spawn(move || {
        while kills()? == before {
            thread::park_timeout(Duration::from_millis(10));
        }
        Ok(now())
    }))
}

/// Returns how often a process has waited for the disk because of a page.
fn major_faults(pid: u32) -> io::Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // Field 12; 10 after the name.
    let fields = stat.rsplit_once(") ").map(|(_, rest)| rest);
    let faults = fields.and_then(|rest| rest.split(' ').nth(9)?.parse().ok());
    faults.ok_or_else(|| io::Error::other(stat.clone()))
}

/// Unlocks the memory of this process on drop.
struct Locked;

impl Locked {
    fn new() -> io::Result<Self> {
        let on_fault = MlockAllFlags::from_bits_retain(libc::MCL_ONFAULT);
        mlockall(MlockAllFlags::MCL_CURRENT | MlockAllFlags::MCL_FUTURE | on_fault)?;
        Ok(Self)
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        if let Err(err) = munlockall() {
            println!("cannot unlock the memory: {err}");
        }
    }
}

/// Unmounts the disk `node` on drop.
struct Mounted;

impl Mounted {
    fn new(node: &Path) -> io::Result<Self> {
        fs::create_dir_all(DIR)?;
        mount(
            Some(node),
            DIR,
            Some("ext4"),
            MsFlags::empty(),
            None::<&str>,
        )?;
        Ok(Self)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(err) = umount(DIR) {
            println!("cannot unmount {DIR}: {err}");
        }
    }
}
