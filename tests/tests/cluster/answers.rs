//! The embedded server and a real one give the same answers to everything on which agents rely.

use serde_json::{Value, json};

use super::caller::{Answer, Caller, LEASES, MERGE, NODES, STRATEGIC, decided, text, until};
use super::stage::{Stage, scenario};

const DEFAULT_EVENTS: &str = "/api/v1/namespaces/default/events";

fn node(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
}

fn lease(name: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name},
        "spec": {
            "holderIdentity": name,
            "leaseDurationSeconds": 40,
            "renewTime": "2026-01-01T00:00:00.000000Z",
        },
    })
}

fn event(stage: &Stage, involved: &Value) -> Value {
    json!({
        "metadata": {"generateName": stage.further("")},
        "involvedObject": involved,
        "type": "Normal",
    })
}

fn reason(answer: &Answer) -> (u16, &str) {
    (answer.0.as_u16(), text(&answer.1, "reason"))
}

#[tokio::test]
async fn errors_have_their_codes_and_reasons() {
    scenario("errors", errors).await;
}

async fn errors(stage: &Stage) {
    let (path, status) = (stage.path(), stage.status_path());
    let missing = stage.further("gone");
    let (admin, patch) = (&stage.admin, STRATEGIC);
    stage.make_node(stage.name()).await;
    let version = |version: &str| json!({"metadata": {"resourceVersion": version}});
    let capacity = |cpu: &str| json!({"status": {"capacity": {"cpu": cpu}}});
    let nameless = json!({"status": {"conditions": [{"status": "True"}]}});
    let far = json!({"kind": "Node", "name": stage.name(), "namespace": "kube-system"});
    let far = event(stage, &far);
    let nowhere = format!("/api/v1/namespaces/{missing}/events");
    let invalid = (422, "Invalid");
    let rows = [
        (
            "no such object",
            admin.get(&format!("{NODES}/{missing}")).await,
            (404, "NotFound"),
        ),
        (
            "there already",
            admin.post(NODES, &node(stage.name())).await,
            (409, "AlreadyExists"),
        ),
        (
            "no such verb",
            admin.delete(&status).await,
            (405, "MethodNotAllowed"),
        ),
        (
            "stale lock in a patch",
            admin.patch(&status, patch, &version("1")).await,
            (409, "Conflict"),
        ),
        (
            "negative quantity",
            admin.patch(&status, patch, &capacity("-1")).await,
            invalid,
        ),
        (
            "no quantity",
            admin.patch(&status, patch, &capacity("four")).await,
            invalid,
        ),
        (
            "no merge key",
            admin.patch(&status, patch, &nameless).await,
            (500, ""),
        ),
        (
            "unknown field",
            admin
                .get(&format!("{NODES}?fieldSelector=spec.x%3Dy"))
                .await,
            (400, "BadRequest"),
        ),
        (
            "event of another namespace",
            admin.post(DEFAULT_EVENTS, &far).await,
            invalid,
        ),
        (
            "no such namespace",
            admin.post(&nowhere, &event(stage, &json!({}))).await,
            (404, "NotFound"),
        ),
        (
            "no such resource",
            admin.get("/api/v1/nothings/x").await,
            (404, "NotFound"),
        ),
        (
            "nothing to patch",
            admin.patch(&format!("{path}gone"), MERGE, &json!({})).await,
            (404, "NotFound"),
        ),
    ];
    let found: Vec<_> = rows
        .iter()
        .map(|(why, answer, _)| (*why, reason(answer)))
        .collect();
    let expected: Vec<_> = rows
        .iter()
        .map(|(why, _, expected)| (*why, *expected))
        .collect();
    assert_eq!(found, expected);
    for (why, (code, answer), _) in &rows {
        assert_eq!(
            (text(answer, "kind"), &answer["code"]),
            ("Status", &json!(code.as_u16())),
            "{why}"
        );
    }
    let negative = rows
        .iter()
        .find(|row| row.0 == "negative quantity")
        .unwrap();
    let details = &negative.1.1["details"];
    assert_eq!(details["causes"][0]["field"], "status.capacity.cpu");
}

#[tokio::test]
async fn the_status_keeps_the_spec_and_the_object_keeps_the_status() {
    scenario("parts", parts).await;
}

async fn parts(stage: &Stage) {
    let mut made = node(stage.name());
    made["spec"] = json!({"providerID": "a"});
    let conditions = json!([{"type": "Ready", "status": "True"}]);
    made["status"] =
        json!({"capacity": {"cpu": "4"}, "phase": "Pending", "conditions": conditions});
    let made = stage.admin.make(NODES, &made).await;
    assert_eq!(made["status"]["allocatable"], json!({"cpu": "4"}));
    let taint = json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]);
    assert_eq!(made["spec"]["taints"], taint);
    let patch = |text: &str| {
        json!({
            "metadata": {"labels": {text: "yes"}},
            "spec": {"unschedulable": true},
            "status": {"phase": text},
        })
    };
    let seen = |node: &Value| {
        let labels = &node["metadata"]["labels"];
        let [running, removed] = [&labels["Running"], &labels["Gone"]];
        json!([
            node["spec"]["unschedulable"],
            node["status"]["phase"],
            running,
            removed
        ])
    };
    let after = stage
        .admin
        .change(&stage.status_path(), STRATEGIC, &patch("Running"))
        .await;
    assert_eq!(seen(&after), json!([null, "Running", "yes", null]));
    let after = stage
        .admin
        .change(&stage.path(), MERGE, &patch("Gone"))
        .await;
    assert_eq!(seen(&after), json!([true, "Running", "yes", "yes"]));
    // Others write in between, but not every time.
    let version = |node: &Value| node["metadata"]["resourceVersion"].clone();
    until("a patch that changes nothing writes nothing", async || {
        let before = stage.node().await;
        let patch = patch("Gone");
        let after = stage.admin.change(&stage.path(), MERGE, &patch).await;
        (version(&after) == version(&before)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_lease_is_locked_by_its_resource_version() {
    scenario("locked", locked).await;
}

async fn locked(stage: &Stage) {
    let path = stage.lease_path();
    let agent = Caller::from_file(&stage.node_file()).await;
    let (code, first) = agent.post(LEASES, &lease(stage.name())).await;
    assert_eq!(
        (code.as_u16(), text(&first["metadata"], "namespace")),
        (201, "kube-node-lease")
    );
    let at = |time: &str, of: &Value| {
        let mut lease = of.clone();
        lease["spec"]["renewTime"] = json!(time);
        lease
    };
    // With the version that it has now, since others may have written to it.
    let (code, second) = decided(async || {
        let (_, now) = agent.get(&path).await;
        agent
            .put(&path, &at("2026-01-01T00:00:10.000000Z", &now))
            .await
    })
    .await;
    assert_eq!(
        (code.as_u16(), &second["metadata"]["uid"]),
        (200, &first["metadata"]["uid"])
    );
    let without = lease(stage.name());
    let seconds = at("2026-01-01T00:00:10Z", &second);
    for (why, body, expected) in [
        ("stale", &first, (409, "Conflict")),
        ("no version", &without, (422, "Invalid")),
        ("no decimals", &seconds, (400, "BadRequest")),
    ] {
        assert_eq!(reason(&agent.put(&path, body).await), expected, "{why}");
    }
    stage.admin.delete(&path).await;
    assert_eq!(
        reason(&agent.put(&path, &second).await),
        (409, "Conflict"),
        "deleted meanwhile"
    );
    assert_eq!(
        agent.put(&path, &without).await.0,
        201,
        "PUT creates a lease"
    );
}

#[tokio::test]
async fn a_node_may_write_its_objects_only_and_an_access_review_reports_it() {
    scenario("permissions", permissions).await;
}

async fn permissions(stage: &Stage) {
    let (path, status, leased) = (stage.path(), stage.status_path(), stage.lease_path());
    let (name, other) = (stage.name(), stage.further("b"));
    for name in [name, &other] {
        stage.make_node(name).await;
    }
    let agent = Caller::from_file(&stage.node_file()).await;
    let labels = |name: &str| json!({"metadata": {"labels": {name: "x"}}});
    let taints = json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}});
    let involved = json!({"kind": "Node", "name": name});
    let get = async |path: String| agent.get(&path).await;
    let rows = [
        ("the agent's node", get(path.clone()).await, 200),
        ("another node", get(format!("{NODES}/{other}")).await, 403),
        (
            "another that does not exist",
            get(format!("{path}-gone")).await,
            403,
        ),
        ("all nodes", get(NODES.to_owned()).await, 403),
        (
            "its node by selector",
            get(format!("{NODES}?fieldSelector=metadata.name%3D{name}")).await,
            200,
        ),
        ("all pods", get("/api/v1/pods".to_owned()).await, 403),
        (
            "its pods",
            get(format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{name}")).await,
            200,
        ),
        ("all leases", get(LEASES.to_owned()).await, 403),
        ("its lease, which does not exist", get(leased).await, 404),
        ("another lease", get(format!("{LEASES}/{other}")).await, 403),
        (
            "create another node",
            agent.post(NODES, &node(&stage.further("c"))).await,
            403,
        ),
        (
            "create another's lease",
            agent.post(LEASES, &lease(&other)).await,
            403,
        ),
        ("delete the agent's node", agent.delete(&path).await, 403),
        ("taints", agent.patch(&path, STRATEGIC, &taints).await, 403),
        (
            "taints with a patch of the status",
            agent.patch(&status, STRATEGIC, &taints).await,
            403,
        ),
        (
            "reserved label",
            agent
                .patch(&status, MERGE, &labels("node-role.kubernetes.io/x"))
                .await,
            403,
        ),
        (
            "well-known label",
            agent
                .patch(&status, MERGE, &labels("kubernetes.io/os"))
                .await,
            200,
        ),
        (
            "foreign label",
            agent.patch(&status, MERGE, &labels("example.com/x")).await,
            200,
        ),
        (
            "event",
            agent.post(DEFAULT_EVENTS, &event(stage, &involved)).await,
            201,
        ),
    ];
    let found: Vec<_> = rows
        .iter()
        .map(|(why, answer, _)| (*why, answer.0.as_u16()))
        .collect();
    let expected: Vec<_> = rows.iter().map(|(why, _, code)| (*why, *code)).collect();
    assert_eq!(found, expected);

    let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    for (verb, name, expected) in [
        ("get", name, true),
        ("get", &other, false),
        ("delete", name, false),
    ] {
        let asked = json!({"verb": verb, "resource": "nodes", "name": name});
        let review = json!({"spec": {"resourceAttributes": asked}});
        let (code, review) = agent.post(reviews, &review).await;
        let allowed = &review["status"]["allowed"];
        assert_eq!(
            (code.as_u16(), allowed),
            (201, &json!(expected)),
            "{verb} {name}"
        );
    }
}
