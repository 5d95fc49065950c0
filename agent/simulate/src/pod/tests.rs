use super::*;

const TIMES: Times = Times {
    start: Duration::from_secs(1),
    run: Duration::from_secs(3),
    stop: Duration::from_secs(4),
};

fn stored(more: &Value) -> Value {
    let mut pod = json!({
        "metadata": {
            "namespace": "shop", "name": "web-0", "uid": "73fa921a-eca1-4215-a3de-46792b9a0331",
            "annotations": {},
        },
        "spec": { "nodeName": "a-0", "containers": [{ "name": "main", "image": "i" }] },
        "status": { "phase": "Pending" },
    });
    for (part, fields) in more.as_object().unwrap() {
        let fields = fields.as_object().unwrap().clone();
        pod[part].as_object_mut().unwrap().extend(fields);
    }
    pod
}

fn pod(more: &Value) -> Pod {
    let stored = StoredPod::of(&stored(more)).unwrap();
    Pod {
        slot: 7,
        ..stored.pod
    }
}

/// Returns the waits in seconds and the steps, at most six.
fn course(mut pod: Pod) -> String {
    let mut course = Vec::new();
    while let Some((wait, step)) = pod.next(&TIMES)
        && course.len() < 6
    {
        course.push(format!("{} {step:?}", wait.as_secs()));
        match step {
            Step::Report(stage) => {
                pod.restarts = pod.restarts_at(stage);
                pod.stage = stage;
            }
            Step::Remove => break,
        }
    }
    course.join(", ").replace("Report", "")
}

#[test]
fn a_pod_runs_through_its_phases_by_policy_exit_code_and_init_containers() {
    let spec = |policy: &str| json!({ "restartPolicy": policy });
    let exits = |code: &str, after: &str| {
        json!({ "annotations": {
            "nodepulse.dev/simulated-exit-code": code, "nodepulse.dev/simulated-run-for": after,
        } })
    };
    let init = json!([
        { "name": "a" }, { "name": "b", "restartPolicy": "Always" }, { "name": "c" },
    ]);
    let deleted = |grace: u32| json!({ "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": grace });
    #[rustfmt::skip]
    let rows = [
        (json!({ "spec": spec("Always") }), "1 (Running)"),
        (json!({ "spec": spec("Never") }), "1 (Running), 3 (Succeeded)"),
        (json!({ "spec": spec("OnFailure") }), "1 (Running), 3 (Succeeded)"),
        (json!({ "spec": spec("Never"), "metadata": exits("1", "9s") }), "1 (Running), 9 (Failed)"),
        (json!({ "spec": spec("OnFailure"), "metadata": exits("1", "9s") }),
            "1 (Running), 9 (BackOff), 10 (Running), 9 (BackOff), 20 (Running), 9 (BackOff)"),
        (json!({ "spec": spec("Always"), "metadata": exits("0", "9s") }),
            "1 (Running), 9 (BackOff), 10 (Running), 9 (BackOff), 20 (Running), 9 (BackOff)"),
        (json!({ "spec": { "restartPolicy": "Never", "initContainers": init } }),
            "1 (Init(0)), 1 (Init(2)), 1 (Running), 3 (Succeeded)"),
        // As an earlier simulation has left it.
        (json!({ "spec": { "restartPolicy": "Never", "initContainers": init },
                 "status": { "initContainerStatuses": [{ "state": { "terminated": {} } }] } }),
            "1 (Running), 3 (Succeeded)"),
        (json!({ "metadata": deleted(30) }), "0 (Failed), 0 Remove"),
        (json!({ "metadata": deleted(30), "status": { "phase": "Running" } }), "4 (Failed), 0 Remove"),
        (json!({ "metadata": deleted(2), "status": { "phase": "Running" } }), "2 (Failed), 0 Remove"),
        (json!({ "metadata": deleted(2), "status": { "phase": "Succeeded" } }), "0 Remove"),
        (json!({ "status": { "phase": "Failed" } }), ""),
        (json!({ "metadata": exits("999", "soon") }), "1 (Running)"),
    ];
    for (more, expected) in rows {
        assert_eq!(course(pod(&more)), expected, "{more}");
    }
}

#[test]
fn the_first_patch_has_addresses_and_all_conditions_and_later_ones_only_changes() {
    let mut pod = pod(&json!({ "spec": { "restartPolicy": "Never" } }));
    let types = |patch: &Value| -> Vec<String> {
        let conditions = patch["status"]["conditions"].as_array().unwrap().iter();
        let short = |c: &Value| {
            format!(
                "{}={}",
                c["type"].as_str().unwrap(),
                c["status"].as_str().unwrap()
            )
        };
        conditions.map(short).collect()
    };
    let running = pod.patch(Stage::Running, at(100));
    assert_eq!(
        running["metadata"]["uid"],
        "73fa921a-eca1-4215-a3de-46792b9a0331"
    );
    let status = &running["status"];
    assert_eq!(status["phase"], "Running");
    assert_eq!(status["podIP"], "198.18.64.7");
    assert_eq!(status["hostIP"], "198.18.0.0");
    let main = &status["containerStatuses"][0];
    assert_eq!(
        main["state"]["running"]["startedAt"],
        "1970-01-01T00:01:40Z"
    );
    assert_eq!(
        (&main["ready"], &main["started"]),
        (&json!(true), &json!(true))
    );
    let all = [
        "PodReadyToStartContainers=True",
        "Initialized=True",
        "Ready=True",
        "ContainersReady=True",
        "PodScheduled=True",
    ];
    assert_eq!(types(&running), all);

    pod.stage = Stage::Running;
    pod.since = 100;
    let over = pod.patch(Stage::Succeeded, at(103));
    assert_eq!(over["status"].get("podIP"), None);
    let ended = &over["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!(
        (&ended["exitCode"], &ended["reason"]),
        (&json!(0), &json!("Completed"))
    );
    assert_eq!(ended["startedAt"], "1970-01-01T00:01:40Z");
    assert_eq!(
        types(&over),
        [
            "PodReadyToStartContainers=False",
            "Initialized=True",
            "Ready=False",
            "ContainersReady=False"
        ]
    );

    pod.deleted = Some(30);
    let stopped = pod.patch(Stage::Failed, at(104));
    let ended = &stopped["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!(
        (&ended["exitCode"], &ended["reason"]),
        (&json!(143), &json!("Error"))
    );
}

#[test]
fn a_restart_shows_the_previous_run() {
    let spec = json!({ "metadata": { "annotations": { "nodepulse.dev/simulated-exit-code": "7" } },
                       "status": { "phase": "Running" } });
    let mut pod = pod(&spec);
    let waits = pod.patch(Stage::BackOff, at(5));
    let main = &waits["status"]["containerStatuses"][0];
    assert_eq!(main["state"]["waiting"]["reason"], "CrashLoopBackOff");
    assert_eq!(main["lastState"]["terminated"]["exitCode"], 7);
    assert_eq!(main["restartCount"], 0);
    let first = main["containerID"].clone();
    pod.stage = Stage::BackOff;
    let again = pod.patch(Stage::Running, at(15));
    let main = &again["status"]["containerStatuses"][0];
    assert_eq!(main["restartCount"], 1);
    assert_eq!(main["lastState"]["terminated"]["containerID"], first);
    assert_ne!(main["containerID"], first);
}

#[test]
fn sidecars_run_until_the_pod_ends() {
    let init = json!([{ "name": "a" }, { "name": "side", "restartPolicy": "Always" }]);
    let mut pod = pod(&json!({ "spec": { "restartPolicy": "Never", "initContainers": init } }));
    let states = |patch: &Value| -> Vec<String> {
        let all = patch["status"]["initContainerStatuses"]
            .as_array()
            .unwrap()
            .iter();
        all.map(|status| {
            status["state"]
                .as_object()
                .unwrap()
                .keys()
                .next()
                .unwrap()
                .clone()
        })
        .collect()
    };
    assert_eq!(
        states(&pod.patch(Stage::Init(0), at(1))),
        ["running", "waiting"]
    );
    pod.stage = Stage::Init(0);
    assert_eq!(
        states(&pod.patch(Stage::Running, at(2))),
        ["terminated", "running"]
    );
    pod.stage = Stage::Running;
    assert_eq!(
        states(&pod.patch(Stage::Succeeded, at(3))),
        ["terminated", "terminated"]
    );
}

#[test]
fn a_pod_without_a_node_or_a_uuid_is_not_read() {
    assert!(StoredPod::of(&stored(&json!({}))).is_some());
    for more in [
        json!({ "spec": { "nodeName": null } }),
        json!({ "metadata": { "uid": "7" } }),
        json!({ "metadata": { "uid": "zzfa921a-eca1-4215-a3de-46792b9a0331" } }),
    ] {
        assert!(StoredPod::of(&stored(&more)).is_none(), "{more}");
    }
    assert!(StoredPod::of(&Value::Null).is_none());
}
