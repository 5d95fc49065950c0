//! Runs the real program with real probes: the privileges that it needs, and what it leaves in the
//! kernel.
//!
//! Runs as root.

use std::fs;
use std::path::{Path, PathBuf};

use nodepulse_linux::kernel::Probe;

use nodepulse_tests::api_server::ApiServer;
use nodepulse_tests::http1::get;
use nodepulse_tests::loaded::programs;
use nodepulse_tests::openmetrics::Exposition;
use nodepulse_tests::process::{Process, node_mode, node_mode_of, program};
use nodepulse_tests::provoke::cgroup::CgroupTree;
use nodepulse_tests::view::View;
use nodepulse_tests::{SOON, eventually};

use super::provoke;

const MIB: u64 = 1 << 20;

/// The probes on every kernel that passes the victim, without the pair, which can be refused.
const PROBES: [Probe; 3] = [Probe::OomVictim, Probe::PidFork, Probe::DiskComplete];

/// Waits for the log lines about attached programs.
async fn all_attached(agent: &Process) {
    for probe in PROBES {
        agent
            .wait_for_line(&format!("attached probe=\"{}\"", probe.program()), SOON)
            .await;
        println!("probe {} on {}: attached", probe.program(), probe.hook());
    }
}

#[tokio::test]
async fn two_capabilities_are_enough_for_every_probe_and_go_before_the_first_kill() {
    // CAP_DAC_READ_SEARCH is 2 (include/uapi/linux/capability.h).
    let rows: [(&[&str], u64); 2] = [
        // Without the capability to open cgroups by their id, the path is found by a walk.
        (&["bpf", "perfmon"], 0),
        (&["bpf", "perfmon", "dac_read_search"], 1 << 2),
    ];
    for (given, left) in rows {
        let agent = Process::start_with_only(given, &["run", "--mode", "node"]);
        all_attached(&agent).await;
        let status = fs::read_to_string(format!("/proc/{}/status", agent.id())).unwrap();
        let effective = status
            .lines()
            .find_map(|line| line.strip_prefix("CapEff:\t"))
            .unwrap();
        let effective = u64::from_str_radix(effective, 16).unwrap();
        // CAP_BPF is 39: kernels before 5.19 require it for maps.
        assert_eq!(effective & !(1 << 39), left, "{given:?}");
        reports_a_kill(&agent).await;
    }
}

/// Provokes a kill at the limit of a pod, and waits for the log line that reports it.
async fn reports_a_kill(agent: &Process) {
    let mut tree = CgroupTree::new(&format!("nodepulse-daemon-{}", std::process::id())).unwrap();
    tree.add("pod/container").unwrap();
    tree.limit("pod", 32 * MIB).unwrap();
    let (pid, _) = provoke()
        .eat_in(&tree.dir("pod/container"), 256 * MIB)
        .unwrap();
    let line = agent
        .wait_for_line(&format!("pid={pid} victim="), SOON)
        .await;
    for path in [tree.path("pod/container"), tree.path("pod")] {
        assert!(line.contains(&format!("\"{path}\"")), "{path}: {line}");
    }
}

#[tokio::test]
async fn nothing_remains_in_the_kernel_however_the_agent_ends() {
    let api = ApiServer::start().await;
    let dir = tempfile::tempdir().unwrap();
    let kubeconfig = api.node_kubeconfig(dir.path(), "worker-1");
    let view = View::of(&api, "worker-1");
    for (round, name) in ["SIGTERM", "SIGKILL"].into_iter().enumerate() {
        let before = programs();
        let kubeconfig = kubeconfig.display().to_string();
        let agent = Process::start(node_mode(&["--kubeconfig", &kubeconfig]));
        all_attached(&agent).await;
        api.wait_for(SOON, "answer to a create", |_| {
            let answered = view.creates().get(round)?.status;
            answered.map(drop)
        })
        .await;
        view.becomes("Ready", "True", SOON).await;
        let attached: Vec<_> = programs()
            .into_iter()
            .filter(|p| !before.contains(p))
            .collect();
        assert!(PROBES.len() <= attached.len(), "{name}: {attached:?}");
        match name {
            "SIGTERM" => agent.terminate(),
            _ => agent.kill(),
        }
        agent.ends(SOON).await;
        eventually(&format!("end of the programs after {name}"), || {
            let left: Vec<_> = programs()
                .into_iter()
                .filter(|p| attached.contains(p))
                .collect();
            if left.is_empty() { Ok(()) } else { Err(left) }
        })
        .await;
        assert_eq!(view.status("Ready"), "True", "{name}");
    }
    assert_eq!(
        view.creates().len(),
        2,
        "the second one got the response that the Node exists"
    );
    assert_eq!(view.creates()[1].status, Some(409));
}

/// Makes the kernel count the runs of programs until it is dropped.
struct CountRuns(String);

impl CountRuns {
    const SETTING: &str = "/proc/sys/kernel/bpf_stats_enabled";

    fn start() -> Self {
        let before = fs::read_to_string(Self::SETTING).unwrap();
        fs::write(Self::SETTING, "1").unwrap();
        Self(before)
    }
}

impl Drop for CountRuns {
    fn drop(&mut self) {
        fs::write(Self::SETTING, self.0.trim()).unwrap();
    }
}

async fn scrape(address: &str) -> Exposition {
    let answer = get(address, "/metrics").await.unwrap();
    Exposition::parse(&answer.body).unwrap()
}

#[tokio::test]
async fn what_the_kernel_counts_of_the_probes_is_in_the_metrics() {
    let counting = CountRuns::start();
    let agent = Process::start(["run", "--mode", "node", "--serve-address", "127.0.0.1:0"]);
    let address = &agent.address().await;
    all_attached(&agent).await;
    let forks = || {
        for _ in 0..100 {
            assert!(
                std::process::Command::new("true")
                    .status()
                    .unwrap()
                    .success()
            );
        }
    };
    forks();
    let probe = [("probe", "pid_fork")];
    let (runs, seconds) = (
        "nodepulse_bpf_runs_total",
        "nodepulse_bpf_run_seconds_total",
    );
    let first = scrape(address).await;
    assert!(first.value(runs, &probe) >= Some(100.0), "{first:?}");
    forks();
    let second = scrape(address).await;
    assert!(second.value(runs, &probe) >= first.value(runs, &probe).map(|n| n + 100.0));
    assert!(second.value(seconds, &probe) > first.value(seconds, &probe));
    let attached = [("probe", "disk_complete"), ("reason", "none")];
    assert_eq!(
        second.value("nodepulse_probe_attached", &attached),
        Some(1.0)
    );
    let lost = [("ring", "crit"), ("reason", "full")];
    assert_eq!(
        second.value("nodepulse_events_lost_total", &lost),
        Some(0.0)
    );
    drop(counting);
}

/// A cgroup with a limit of tasks; removed on drop, when no process is in it.
struct LimitedTasks(PathBuf);

impl LimitedTasks {
    fn new(name: &str, max: u32) -> Self {
        // Version 1 has a hierarchy for the controller.
        let hierarchy = Path::new("/sys/fs/cgroup/pids");
        let unified = !hierarchy.is_dir();
        let hierarchy = if unified {
            Path::new("/sys/fs/cgroup")
        } else {
            hierarchy
        };
        if unified {
            fs::write(hierarchy.join("cgroup.subtree_control"), "+pids").unwrap();
        }
        let limited = Self(hierarchy.join(format!("{name}-{}", std::process::id())));
        fs::create_dir(&limited.0).unwrap();
        limited.set(&max.to_string());
        limited
    }

    fn set(&self, max: &str) {
        fs::write(self.0.join("pids.max"), max).unwrap();
    }

    /// Starts the agent in the cgroup.
    fn start(&self, args: &[String]) -> Process {
        let procs = self.0.join("cgroup.procs");
        let script = format!(
            "echo $$ >{}; exec {} \"$@\"",
            procs.display(),
            program().display()
        );
        let shell = ["-c".to_owned(), script, "sh".to_owned()];
        Process::start_program(Path::new("/bin/sh"), shell.iter().chain(args))
    }
}

impl Drop for LimitedTasks {
    fn drop(&mut self) {
        drop(fs::remove_dir(&self.0));
    }
}

#[tokio::test]
async fn an_agent_that_gets_no_thread_continues_when_there_are_some() {
    let api = ApiServer::start().await;
    let dir = tempfile::tempdir().unwrap();
    // tasks, what has none
    let rows = [
        (1, "cannot start the log thread"),
        (2, "cannot start a thread for calls"),
    ];
    for (max, line) in rows {
        let name = format!("worker-{max}");
        let kubeconfig = api.node_kubeconfig(dir.path(), &name).display().to_string();
        let further = ["--kubeconfig", &kubeconfig, "--kernel-tier", "files"];
        let tasks = LimitedTasks::new("nodepulse-tasks", max);
        let agent = tasks.start(&node_mode_of(&name, "0.0.0.0", &further));
        agent.wait_for_line(line, SOON).await;
        tasks.set("max");
        View::of(&api, &name).settled(SOON).await;
        agent.terminate();
        let ended = agent.ends(SOON).await;
        assert_eq!(ended.code, Some(0), "{max}: {ended:?}");
    }
}
