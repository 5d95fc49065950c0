//! The early warning of a kill at a memory limit (`oom.earlyWarning`).

use nodepulse::record::Record;
use nodepulse::units::CgroupId;
use nodepulse_tests::node::in_memory;

use super::*;

const ON: &str = "apiVersion: nodepulse.dev/v1alpha1\nkind: NodepulseConfiguration\n\
                  oom: {earlyWarning: true}\n";
const MIB: u64 = 1 << 20;
const REASON: &str = "MemoryLimitReached";

/// The container has so much anonymous memory, and file pages up to its limit of 512 MiB.
fn fill(host: &MadeUpHost, anon: u64, hits: u64) {
    let file = |name: &str| format!("sys/fs/cgroup/{CONTAINER}/{name}");
    let (anon, rest) = (anon * MIB, (512 - anon) * MIB);
    let stat = format!(
        "anon {anon}\nfile {rest}\nshmem 0\ninactive_file {rest}\nactive_file 0\nslab_reclaimable 0\n"
    );
    host.write(&file("memory.events.local"), format!("max {hits}\noom 0\n"))
        .write(&file("memory.max"), format!("{}\n", 512 * MIB))
        .write(&file("memory.current"), format!("{}\n", 512 * MIB))
        .write(&file("memory.stat"), stat);
}

fn id(host: &MadeUpHost) -> CgroupId {
    use std::os::unix::fs::MetadataExt as _;
    let dir = host.path().join("sys/fs/cgroup").join(POD);
    CgroupId(dir.metadata().unwrap().ino())
}

fn warnings(api: &ApiServer) -> Vec<Value> {
    let mut events = cart().events(api);
    events.retain(|event| event["reason"] == REASON);
    events
}

/// Notifies once, and then lets ten seconds pass after each size.
async fn run(node: &Running, host: &MadeUpHost, sizes: impl IntoIterator<Item = u64>) {
    let pod = id(host);
    node.kernel()
        .send_record(Record::MemoryLimitReached { pod })
        .await;
    for (hits, anon) in (1..).zip(sizes) {
        fill(host, anon, hits * 10);
        pass(Duration::from_secs(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_leak_is_an_event_on_the_pod_with_the_name_of_its_container() {
    let api = in_memory();
    cart().put(&api);
    let host = host();
    fill(&host, 470, 1);
    let node = started(
        &api,
        Node::named("worker-1").file(ON).host(Arc::clone(&host)),
    )
    .await;
    run(&node, &host, (470..500).step_by(2)).await;
    let [event] = &warnings(&api)[..] else {
        panic!("{:?}", cart().events(&api));
    };
    let expected = "Container web uses 478.0Mi of its memory limit of 512.0Mi, not counting what the kernel \
                    can reclaim: 478.0Mi of anonymous memory and 0 of shared memory (such as an emptyDir of \
                    medium Memory). That grew by 8.0Mi in the last 40 seconds. If it continues to grow, a process \
                    will be OOM-killed in about 3 minutes. If this memory is needed, raise the limit \
                    (resources.limits.memory); otherwise find the leak.";
    assert_eq!(message(event), expected);
    assert_eq!(
        (&event["type"], &event["count"]),
        (&"Warning".into(), &1.into())
    );
    assert_eq!(event["involvedObject"]["fieldPath"], "spec.containers{web}");
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn page_cache_at_the_limit_is_no_event_and_causes_no_request() {
    let api = in_memory();
    cart().put(&api);
    let host = host();
    fill(&host, 100, 1);
    let node = started(
        &api,
        Node::named("worker-1").file(ON).host(Arc::clone(&host)),
    )
    .await;
    let posts = |api: &ApiServer| api.requests_where(|request| request.method == "POST").len();
    let before = posts(&api);
    run(&node, &host, std::iter::repeat_n(100, 60)).await;
    assert_eq!(warnings(&api), Vec::<Value>::new());
    assert_eq!(posts(&api), before);
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_leak_is_reported_only_while_it_is_switched_on() {
    let api = in_memory();
    cart().put(&api);
    let host = host();
    fill(&host, 470, 1);
    let node = started(&api, Node::named("worker-1").host(Arc::clone(&host))).await;
    run(&node, &host, (470..490).step_by(2)).await;
    assert_eq!(warnings(&api), Vec::<Value>::new(), "off by default");
    node.reload(|now| now.oom_early_warning = Some("true".to_owned()))
        .await;
    pass(Duration::from_secs(1)).await;
    run(&node, &host, (470..490).step_by(2)).await;
    assert_eq!(warnings(&api).len(), 1);
    node.stop().await.unwrap();
}
