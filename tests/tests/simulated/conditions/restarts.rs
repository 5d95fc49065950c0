//! A restart changes no condition.

use std::fs;

use nodepulse_tests::node::pass;
use serde_json::{Value, json};

use super::*;

const STATE: &str = "run/nodepulse/state";

/// The agent after its restart, and how many status patches there were before.
async fn restarted(sim: Sim, change: impl FnOnce(&ApiServer, &MadeUpHost)) -> (Sim, usize) {
    let Sim { api, host, node } = sim;
    node.stop().await.unwrap();
    change(&api, &host);
    let before = View::of(&api, "worker-1").patches().len();
    (Sim::on(&api, host, |node| node).await, before)
}

/// What the first status patch after so many others contains about a condition.
async fn first_patch_after(sim: &Sim, before: usize, type_: &str) -> Value {
    let what = "a status patch after the restart";
    let patch = sim.api.wait_for(SOON, what, |_| {
        let patches = sim.view().patches().into_iter();
        patches.skip(before).find(|patch| patch.status == Some(200))
    });
    let body = patch.await.body.unwrap_or_default();
    let conditions = body["status"]["conditions"].as_array();
    let mut all = conditions.into_iter().flatten();
    all.find(|c| c["type"] == type_)
        .cloned()
        .unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_condition_that_was_due_to_end_during_downtime_ends_with_the_first_patch() {
    let sim = Sim::start(|node| node).await;
    sim.crowd().await;
    sim.view().becomes("PIDPressure", "True", SOON).await;
    let Sim { api, host, node } = sim;
    node.stop().await.unwrap();
    host.tasks(FEW);
    pass(TRANSITION + Duration::from_secs(1)).await;
    let before = View::of(&api, "worker-1").patches().len();
    let sim = Sim::on(&api, host, |node| node).await;
    let first = first_patch_after(&sim, before, "PIDPressure").await;
    assert_eq!(first["status"], "False", "{first}");
}

#[tokio::test(start_paused = true)]
async fn a_condition_ends_on_time_even_if_kills_cannot_be_counted() {
    let counters = "sys/fs/cgroup/kubepods/memory.events";
    let host = Arc::new(MadeUpHost::calm());
    unreadable(&host, counters);
    let sim = Sim::on(&in_memory(), host, |node| node).await;
    sim.crowd().await;
    sim.view().becomes("PIDPressure", "True", SOON).await;
    sim.host.tasks(FEW);
    let over = sim.api.now();
    pass(Duration::from_mins(1)).await;
    // The kills that can be counted from now on are no change: they may be old.
    let (sim, _) = restarted(sim, |_, host| _ = host.remove(counters).pods_oom(3, 3)).await;
    pass(Duration::from_mins(1)).await;
    assert_eq!(sim.view().status("PIDPressure"), "True");
    let (_, at) = sim.view().becomes("PIDPressure", "False", TRANSITION).await;
    let lasted = at - over;
    assert!(
        (TRANSITION..=TRANSITION + REGULAR).contains(&lasted),
        "lasted {lasted:?}"
    );
    let events = sim.view().event_counts();
    assert_eq!(events.get("OOMKilled"), None, "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn after_sigkill_a_condition_ends_half_a_minute_late_at_most_and_never_early() {
    for seconds in [1, 14, 29, 61] {
        let sim = Sim::start(|node| node).await;
        let Sim { api, host, node } = sim;
        host.tasks(MANY);
        node.kernel().pid_crossing(Side::Over, 9_600).await;
        pass(Duration::from_secs(seconds)).await;
        // The next agent has only the content of the file.
        let file = host.path().join(STATE);
        let left = fs::read(&file).unwrap();
        let killed = api.now();
        node.stop().await.unwrap();
        fs::write(&file, left).unwrap();
        host.tasks(FEW);
        pass(Duration::from_mins(1)).await;
        let sim = Sim::on(&api, host, |node| node).await;
        let (_, at) = sim
            .view()
            .becomes("PIDPressure", "False", TRANSITION * 2)
            .await;
        // It was last sampled five seconds before at most.
        let least = TRANSITION.checked_sub(Duration::from_secs(5)).unwrap();
        let most = TRANSITION + Duration::from_secs(30) + REGULAR;
        let lasted = at - killed;
        assert!((least..=most).contains(&lasted), "{seconds} s: {lasted:?}");
    }
}

/// Sets a condition to True on the Node, as only the agent should.
fn meddle(sim: &ApiServer, type_: &str) {
    let path = "/api/v1/nodes/worker-1";
    let mut node = sim.object(path).unwrap();
    let conditions = node["status"]["conditions"].as_array_mut().unwrap();
    let condition = conditions.iter_mut().find(|c| c["type"] == type_).unwrap();
    condition["status"] = json!("True");
    condition["reason"] = json!("Theirs");
    sim.put_object(node);
}

#[tokio::test(start_paused = true)]
async fn a_true_of_another_client_is_corrected_unless_the_source_is_unavailable() {
    let types = [
        "MemoryPressure",
        "PIDPressure",
        "DiskPressure",
        "DiskIOPressure",
        "DiskFailing",
    ];
    let sim = Sim::start(|node| node).await;
    pass(Duration::from_secs(33)).await;
    let (sim, before) = restarted(sim, |api, _| {
        types.into_iter().for_each(|type_| meddle(api, type_));
    })
    .await;
    for type_ in types {
        let first = first_patch_after(&sim, before, type_).await;
        assert_eq!(first["status"], "False", "{first}");
        assert_eq!(sim.view().status(type_), "False", "{type_}");
    }

    // Without the file the agent may have written it.
    let (mut sim, _) = restarted(sim, |api, host| {
        host.remove(STATE);
        meddle(api, "PIDPressure");
    })
    .await;
    let adopted = sim.api.now();
    // Once: restarts do not prolong it.
    for _ in 0..3 {
        pass(Duration::from_mins(1)).await;
        assert_eq!(sim.view().status("PIDPressure"), "True");
        (sim, _) = restarted(sim, |_, _| {}).await;
    }
    let (_, at) = sim.view().becomes("PIDPressure", "False", TRANSITION).await;
    let lasted = at - adopted;
    assert!(
        (TRANSITION..=TRANSITION + SOON).contains(&lasted),
        "lasted {lasted:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_state_of_another_boot_is_ignored() {
    let sim = Sim::start(|node| node).await;
    sim.crowd().await;
    sim.view().becomes("PIDPressure", "True", SOON).await;
    let Sim { api, host, node } = sim;
    node.stop().await.unwrap();
    let file = host.path().join(STATE);
    let text = fs::read_to_string(&file).unwrap();
    let boot = text.lines().nth(1).unwrap();
    fs::write(&file, text.replace(boot, "boot another")).unwrap();
    host.tasks(FEW);
    pass(Duration::from_mins(2)).await;
    let restarted = api.now();
    let sim = Sim::on(&api, host, |node| node).await;
    let view = sim.view();
    let (_, at) = view.becomes("PIDPressure", "False", TRANSITION * 2).await;
    assert!(TRANSITION <= at - restarted, "{:?}", at - restarted);
}
