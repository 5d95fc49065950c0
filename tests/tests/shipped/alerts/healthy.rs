//! Runs healthy agents on each layout of a node for an hour, and agents with problems.

use std::path::PathBuf;
use std::sync::Arc;

use nodepulse_core::clock::BootNanos;
use nodepulse_core::node_status::nodepulse_condition::NodepulseCondition;
use nodepulse_core::reading::{Stall, StallKind, StallOf};
use nodepulse_core::record::{Record, ScopeSource};
use nodepulse_linux::kernel::counters::ProbeCounters;
use nodepulse_linux::kernel::support::Missing;
use nodepulse_linux::kernel::{Probe, ProbeState, Support};

use agent_common::DropReason;
use nodepulse_tests::api_server::{ApiServer, Effect, Fault};
use nodepulse_tests::host_root::{Cgroups, MadeUpHost, PODS};
use nodepulse_tests::node::{
    COMPANION, COMPANION_PERMISSIONS, Kill, Limit, Node, Running, in_memory,
};

use super::promtool::Promtool;
use super::scrapes::Scrapes;
use super::{RULES, promtool};

/// Duration that exceeds any `for` and any range except those of a day.
const MINUTES: usize = 60;

/// Creates a node with a kubelet, and grants an agent in companion mode the permissions of the
/// chart.
fn server() -> Arc<ApiServer> {
    let api = in_memory();
    api.grant_all(COMPANION, &COMPANION_PERMISSIONS);
    api.put_object(serde_json::json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": "worker-1" },
    }));
    api
}

fn host(cgroups: Cgroups) -> MadeUpHost {
    let host = without_disks(cgroups);
    host.disk("sda", "8:0");
    host
}

fn without_disks(cgroups: Cgroups) -> MadeUpHost {
    let host = MadeUpHost::with(cgroups);
    if cgroups == Cgroups::V2 {
        for kind in ["memory", "io"] {
            let file = format!("sys/fs/cgroup/{PODS}/{kind}.pressure");
            host.write(&file, "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n");
        }
    }
    host
}

const GLOBAL: Kill<'_> = Kill {
    victim: ("java", 4321),
    cgroup: "kubepods/burstable/pod1/ctr",
    limit: Limit::Machine,
    source: ScopeSource::Exact,
};

/// Counts records that did not fit into the ring CRIT.
fn lost(count: u64) -> ProbeCounters {
    ProbeCounters {
        losses: DropReason::ALL
            .iter()
            .map(|reason| {
                (
                    *reason,
                    if *reason == DropReason::CritFull {
                        count
                    } else {
                        0
                    },
                )
            })
            .collect(),
        ..ProbeCounters::default()
    }
}

/// Configures an agent with all conditions.
fn companion(host: MadeUpHost) -> Node {
    let on = |condition: NodepulseCondition| format!("{}=true", condition.type_());
    let all = NodepulseCondition::ALL.map(on).join(",");
    Node::companion("worker-1")
        .host(host)
        .config(|overrides| overrides.conditions = Some(all))
}

/// Returns the best programs, except for these.
fn without(probes: &[Probe], instead: &[Probe], why: &Missing) -> Support {
    let mut support = Support::all();
    for (probe, state) in &mut support.probes {
        if probes.contains(probe) {
            *state = ProbeState::Missing(why.clone());
        }
        if instead.contains(probe) {
            *state = ProbeState::Attached;
        }
    }
    support
}

fn refused() -> Missing {
    Missing::Refused {
        why: "load: not supported (os error 524)".to_owned(),
    }
}

fn no_btf() -> Missing {
    Missing::Btf {
        path: PathBuf::from("/sys/kernel/btf/vmlinux"),
        why: "no such file".to_owned(),
    }
}

/// Returns each layout of a node without a problem.
fn layouts() -> Vec<(&'static str, Node)> {
    use Probe::{OomExit, OomFentry, OomPid, OomVictim, ScopeEnter, ScopeLeave};
    let v2 = || companion(host(Cgroups::V2));
    let scope = [ScopeEnter, ScopeLeave];
    let no_fentry = without(&scope, &[], &refused());
    let mut by_pid = without(&scope, &[OomPid, OomExit], &refused());
    by_pid
        .probes
        .iter_mut()
        .for_each(|(probe, state)| match probe {
            OomVictim => *state = ProbeState::Missing(Missing::Prototype),
            OomFentry => *state = ProbeState::Missing(refused()),
            _ => {}
        });
    let no_psi = host(Cgroups::V2);
    for kind in ["cpu", "io", "memory"] {
        no_psi.remove(&format!("proc/pressure/{kind}"));
    }
    // An open log that has no record yet.
    let (log, writer) = std::io::pipe().unwrap();
    std::mem::forget(writer);
    vec![
        ("cgroup v2, all programs", v2()),
        ("cgroup v1", companion(host(Cgroups::V1))),
        ("cgroups of both versions", companion(host(Cgroups::Hybrid))),
        ("no fentry", v2().support(no_fentry)),
        (
            "mark_victim passes a PID",
            v2().support(without(&[OomVictim], &[OomFentry], &Missing::Prototype)),
        ),
        ("mark_victim passes a PID, no fentry", v2().support(by_pid)),
        (
            "no BTF: tier kmsg",
            v2().support(Support::none(&no_btf())).log(log),
        ),
        ("no BTF: tier files", v2().support(Support::none(&no_btf()))),
        (
            "kernel.tier: files",
            v2().support(Support::none(&Missing::TurnedOff)),
        ),
        (
            "built without eBPF",
            v2().support(Support::none(&Missing::NotBuilt)),
        ),
        ("no PSI", companion(no_psi)),
        ("no disk", companion(without_disks(Cgroups::V2))),
        ("no API server", v2().alone()),
        ("node mode", Node::named("worker-1").host(host(Cgroups::V2))),
    ]
}

/// Runs the agent for an hour, with `trouble` after a quarter; returns an error if other alerts
/// fire than those with the labels `expected`.
async fn check(
    promtool: &Promtool,
    node: Running,
    trouble: impl AsyncFnOnce(&Running),
    expected: &[&str],
) -> Result<(), String> {
    let mut scrapes = Scrapes::default();
    scrapes.of(&node, MINUTES / 4).await;
    trouble(&node).await;
    scrapes.of(&node, MINUTES - MINUTES / 4).await;
    promtool.test(RULES, &scrapes.test(expected))
}

#[tokio::test(start_paused = true)]
async fn no_alert_fires_on_a_healthy_node_of_any_layout() {
    let Some(promtool) = promtool() else { return };
    let mut fired = Vec::new();
    for (layout, node) in layouts() {
        let node = node.start(&server());
        if let Err(why) = check(&promtool, node, async |_| (), &[]).await {
            fired.push(format!("{layout}: {why}"));
        }
    }
    assert!(fired.is_empty(), "{}", fired.join("\n"));
}

#[tokio::test(start_paused = true)]
async fn an_agent_whose_programs_are_all_refused_fires_one_alert() {
    let Some(promtool) = promtool() else { return };
    let node = companion(host(Cgroups::V2)).support(Support::none(&refused()));
    let node = node.start(&server());
    let expected = [r#"alertname="NodepulseProbesRefused""#];
    let found = check(&promtool, node, async |_| (), &expected).await;
    found.unwrap_or_else(|why| panic!("{why}"));
}

#[tokio::test(start_paused = true)]
async fn an_agent_with_problems_fires_their_alerts_and_no_others() {
    let Some(promtool) = promtool() else { return };
    let host = Arc::new(host(Cgroups::V2));
    let api = server();
    let node = Node::companion("worker-1")
        .host(Arc::clone(&host))
        .start(&api);
    node.counted(lost(0));
    let trouble = async |node: &Running| {
        host.mem_working_set("15700Mi");
        host.remove("proc/loadavg").remove("proc/pressure/memory");
        let stall = Stall::new(StallOf::Node, StallKind::Memory);
        let at = BootNanos(0);
        let fired = Record::Stall { at, stall };
        node.kernel().send_record(fired).await;
        node.reload(|settings| settings.eviction_hard = Some("nonsense".to_owned()))
            .await;
        api.faults()
            .push(Fault::on("PATCH", "/api/v1/nodes", Effect::Status(500)).always());
        for _ in 0..3 {
            node.kernel().oom_kill(GLOBAL).await;
        }
        node.counted(lost(7));
    };
    let expected = [
        r#"alertname="NodepulseConditionUnknown",type="MemoryStallPressure""#,
        r#"alertname="NodepulseConditionUnknown",type="PIDsLow""#,
        r#"alertname="NodepulseConfigReloadFailed""#,
        r#"alertname="NodepulseEventsLost""#,
        r#"alertname="NodepulseGlobalOOMKill""#,
        r#"alertname="NodepulseMemoryLow",type="MemoryLow""#,
        r#"alertname="NodepulseRequestsFail""#,
    ];
    let found = check(&promtool, node, trouble, &expected).await;
    found.unwrap_or_else(|why| panic!("{why}"));
}
