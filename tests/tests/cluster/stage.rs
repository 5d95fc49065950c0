//! The parts of a scenario: a server, a name on it, a simulated machine, and credentials.

use std::hash::{BuildHasher as _, RandomState};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use futures_util::FutureExt as _;
use nodepulse_tests::api_server::{ApiServer, Identity};
use nodepulse_tests::host_root::MadeUpHost;
use nodepulse_tests::process::Process;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::{OnceCell, RwLock};

use super::caller::{Answer, Caller, LEASES, MERGE, NODES, array, text, until};
use super::neighbours::Neighbours;
use super::shipped::{collection, grant, shipped};

mod bootstrap;

pub use bootstrap::REQUESTS;

const ADMIN: &str = "NODEPULSE_E2E_KUBECONFIG";
pub const NAMESPACE: &str = "nodepulse";
pub const PODS: &str = "/api/v1/namespaces/nodepulse/pods";

/// On a server of all scenarios, who changes what others go by is alone.
static TURNS: RwLock<()> = RwLock::const_new(());

pub struct Stage {
    pub admin: Caller,
    pub host: MadeUpHost,
    admin_file: PathBuf,
    double: Option<ApiServer>,
    neighbours: Neighbours,
    name: String,
    dir: TempDir,
    installed: OnceCell<()>,
}

/// What all names of this run begin with. The cluster may be another run's too.
pub static RUN: LazyLock<String> = LazyLock::new(|| {
    let number = RandomState::new().hash_one(std::process::id());
    format!("nodepulse-e2e-{:08x}", number >> 32)
});

/// Runs a scenario under a separate name, and removes what it created, however it ends.
pub async fn scenario(name: &str, body: impl AsyncFnOnce(&Stage)) {
    let _turn = match real() {
        Some(_) => Some(TURNS.read().await),
        None => None,
    };
    Stage::open(name).await.play(body).await;
}

/// The same, without another scenario at the same time.
pub async fn alone(name: &str, body: impl AsyncFnOnce(&Stage)) {
    let _turn = match real() {
        Some(_) => Some(TURNS.write().await),
        None => None,
    };
    Stage::open(name).await.play(body).await;
}

/// The kubeconfig of an administrator of a real server, if there is one.
pub fn real() -> Option<PathBuf> {
    std::env::var_os(ADMIN).map(PathBuf::from)
}

impl Stage {
    async fn open(name: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (double, admin_file) = match real() {
            Some(file) => (None, file),
            None => {
                let server = ApiServer::start().await;
                let file = server.admin_kubeconfig(dir.path());
                (Some(server), file)
            }
        };
        let admin = Caller::from_file(&admin_file).await;
        let name = format!("{}-{name}", *RUN);
        let stage = Self {
            neighbours: Neighbours::start(&admin, &name),
            admin,
            host: MadeUpHost::calm(),
            admin_file,
            double,
            name,
            dir,
            installed: OnceCell::new(),
        };
        stage.host.pid_max(10_000);
        stage
    }

    /// Installs what is shipped. A node in node mode needs none of it, not even the namespace.
    async fn install_shipped(&self) {
        let install = async || {
            for object in shipped() {
                self.install(&object).await;
            }
        };
        self.installed.get_or_init(install).await;
    }

    async fn play(mut self, body: impl AsyncFnOnce(&Stage)) {
        let body = std::panic::AssertUnwindSafe(body(&self));
        let ended = body.catch_unwind().await;
        let others = self.neighbours.stop().await;
        let left = until("nothing is left of it", async || self.clear().await);
        let cleared = std::panic::AssertUnwindSafe(left).catch_unwind().await;
        if let Err(panic) = ended.and(others).and(cleared) {
            std::panic::resume_unwind(panic);
        }
    }

    /// The embedded server knows roles by what they give.
    async fn install(&self, object: &Value) {
        let Some(server) = &self.double else {
            let place = collection(object);
            let (code, answer) = self.admin.post(&place, object).await;
            if code == 409 {
                // Perhaps of another version.
                let path = format!("{place}/{}", text(&object["metadata"], "name"));
                self.admin.change(&path, MERGE, object).await;
            } else {
                assert!(code.is_success(), "POST {place}: {code} {answer}");
            }
            return;
        };
        match text(object, "kind") {
            "Namespace" => drop(self.admin.make(&collection(object), object).await),
            "ClusterRole" => {
                let account = text(&object["metadata"], "name");
                for rule in object["rules"].as_array().unwrap() {
                    grant(server, account, rule);
                }
            }
            _ => (),
        }
    }

    /// Deletes what has its name. `Some` when there was nothing.
    async fn clear(&self) -> Option<()> {
        let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
        let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
        let events = ["default", NAMESPACE].map(|of| format!("/api/v1/namespaces/{of}/events"));
        let [of_nodes, of_pods] = &events;
        let places = [PODS, LEASES, NODES, of_nodes, of_pods, bindings, roles];
        let places = &places[..if self.double.is_some() { 5 } else { 7 }];
        let mut found = self.clear_requests().await;
        for place in places {
            for object in self.admin.items(place).await {
                let name = text(&object["metadata"], "name");
                if is_of(name, &self.name) {
                    found += 1;
                    self.admin.delete(&format!("{place}/{name}")).await;
                }
            }
        }
        (found == 0).then_some(())
    }

    /// Creates a pod of one container for the scheduler, which finds only the Node of this scenario
    /// for it.
    pub async fn unscheduled_pod(&self, name: &str, container: &Value) -> Answer {
        self.install_shipped().await;
        let mut container = container.clone();
        container["name"] = json!("c");
        container["image"] = json!("none.invalid/none");
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name},
            "spec": {
                "nodeSelector": {"kubernetes.io/hostname": self.name},
                "serviceAccountName": "nodepulse",
                "tolerations": [{"operator": "Exists"}],
                "containers": [container],
            },
        });
        self.admin.post(PODS, &pod).await
    }

    /// Waits until the neighbours have written to the Node and its Lease that are there now.
    pub async fn neighbours_write(&self) {
        let before = [self.node().await, self.lease().await];
        self.neighbours.a_turn().await;
        let after = [self.node().await, self.lease().await];
        for (before, after) in before.iter().zip(&after) {
            let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
            let moved = version(before) != version(after);
            assert!(
                before.is_null() || moved,
                "no other client wrote: {after:#}"
            );
        }
    }

    /// The name of the Node that it is about.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A name for another object of the scenario.
    pub fn further(&self, what: &str) -> String {
        format!("{}-{what}", self.name)
    }

    pub fn path(&self) -> String {
        format!("{NODES}/{}", self.name)
    }

    pub fn status_path(&self) -> String {
        format!("{}/status", self.path())
    }

    pub fn lease_path(&self) -> String {
        format!("{LEASES}/{}", self.name)
    }

    pub async fn node(&self) -> Value {
        self.admin.object(&self.path()).await
    }

    pub async fn lease(&self) -> Value {
        self.admin.object(&self.lease_path()).await
    }

    /// Creates a Node that is ready, so that no cloud controller removes it.
    pub async fn make_node(&self, name: &str) -> Value {
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        self.admin.make(NODES, &node).await
    }

    /// Waits until `wanted` is true for the Node, and returns it.
    pub async fn node_is(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        until(what, async || Some(self.node().await).filter(&wanted)).await
    }

    /// The agent's Events about the Node.
    pub async fn node_events(&self) -> Vec<Value> {
        let selector = format!("involvedObject.name={}", self.name);
        self.events("default", &selector).await
    }

    /// The agent's Events about the pod of this uid.
    pub async fn pod_events(&self, uid: &str) -> Vec<Value> {
        let selector = format!("involvedObject.uid={uid}");
        self.events(NAMESPACE, &selector).await
    }

    async fn events(&self, namespace: &str, selector: &str) -> Vec<Value> {
        let path = format!("/api/v1/namespaces/{namespace}/events?fieldSelector={selector}");
        let source = json!({"component": "nodepulse", "host": self.name});
        let mut events = self.admin.items(&path).await;
        events.retain(|event| event["source"] == source);
        events
    }

    /// Waits for an Event of the agent about the Node with this reason.
    pub async fn node_event(&self, reason: &str) -> Value {
        let search = async || {
            let events = self.node_events().await;
            events.into_iter().find(|event| event["reason"] == reason)
        };
        until(&format!("an event {reason}"), search).await
    }

    /// Whether the agent has written to this object: by the server's record of requests, or by
    /// the managers of fields that a real one notes.
    pub fn was_written(&self, object: &Value) -> bool {
        let Some(server) = &self.double else {
            let managers = array(&object["metadata"]["managedFields"]);
            return managers.iter().any(|entry| entry["manager"] == "nodepulse");
        };
        let name = text(&object["metadata"], "name");
        let agents = server.requests_where(|request| {
            let of_agent = request.headers.get("user-agent");
            of_agent.is_some_and(|agent| agent.starts_with("nodepulse/"))
                && request.method != "GET"
                && request.path.split('/').any(|part| part == name)
        });
        !agents.is_empty()
    }

    /// A pod on the Node, which no kubelet has reported; returns its uid. As a DaemonSet's, it is
    /// not evicted from its node.
    pub async fn pod(&self, name: &str) -> String {
        self.install_shipped().await;
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name},
            "spec": {
                "nodeName": self.name, "serviceAccountName": "nodepulse",
                "tolerations": [{"operator": "Exists"}],
                "containers": [{"name": "agent", "image": "none.invalid/none"}],
            },
        });
        let pod = self.admin.make(PODS, &pod).await;
        text(&pod["metadata"], "uid").to_owned()
    }

    /// A token of the agent's account as its `n`th pod on the Node has it. The one before is no
    /// longer good.
    pub async fn token(&self, n: u32) -> String {
        let account = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/nodepulse/token");
        let pod = |n: u32| format!("{}-agent-{n}", self.name);
        if let Some(server) = &self.double {
            if let Some(before) = n.checked_sub(1) {
                server.revoke_token(&pod(before));
            }
            let user = format!("system:serviceaccount:{NAMESPACE}:nodepulse");
            server.allow_token(&pod(n), Identity::user(&user));
            return pod(n);
        }
        if let Some(before) = n.checked_sub(1) {
            self.admin.delete(&format!("{PODS}/{}", pod(before))).await;
        }
        let uid = self.pod(&pod(n)).await;
        let request = json!({"spec": {"boundObjectRef": {
            "kind": "Pod", "apiVersion": "v1", "name": pod(n), "uid": uid,
        }}});
        let (status, answer) = self.admin.post(&account, &request).await;
        assert!(status.is_success(), "{status} {answer}");
        text(&answer["status"], "token").to_owned()
    }

    /// A kubeconfig of a companion, whose token is in a file next to it.
    pub async fn companion_file(&self) -> PathBuf {
        self.install_shipped().await;
        let token = self.token_file();
        std::fs::write(&token, self.token(0).await).unwrap();
        let file = self.kubeconfig("companion", &json!({"tokenFile": token}));
        may_patch(&file, "status").await;
        file
    }

    pub fn token_file(&self) -> PathBuf {
        self.dir.path().join("token")
    }

    /// A kubeconfig of the cleanup Job's account.
    pub async fn cleanup_file(&self) -> PathBuf {
        self.install_shipped().await;
        let account = "nodepulse-cleanup";
        let token = if let Some(server) = &self.double {
            let user = format!("system:serviceaccount:{NAMESPACE}:{account}");
            server.allow_token(account, Identity::user(&user));
            account.to_owned()
        } else {
            let path = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token");
            let (status, answer) = self.admin.post(&path, &json!({"spec": {}})).await;
            assert!(status.is_success(), "{status} {answer}");
            text(&answer["status"], "token").to_owned()
        };
        let file = self.kubeconfig("cleanup", &json!({"token": token}));
        may_patch(&file, "").await;
        file
    }

    /// A kubeconfig of the Node's agent.
    pub fn node_file(&self) -> PathBuf {
        match &self.double {
            Some(server) => server.node_kubeconfig(self.dir.path(), &self.name),
            None => self.kubeconfig(
                "node",
                &json!({"as": format!("system:node:{}", self.name), "as-groups": ["system:nodes"]}),
            ),
        }
    }

    /// A path in the directory of the scenario.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The administrator's kubeconfig with other credentials, or with a user to impersonate.
    fn kubeconfig(&self, name: &str, user: &Value) -> PathBuf {
        let read = std::fs::read_to_string(&self.admin_file).unwrap();
        let mut config: Value = serde_saphyr::from_str(&read).unwrap();
        let admin = &mut config["users"][0]["user"];
        if user.get("as").is_none() {
            *admin = json!({});
        }
        for (key, value) in user.as_object().unwrap() {
            admin[key] = value.clone();
        }
        let path = self.dir.path().join(name);
        std::fs::write(&path, config.to_string()).unwrap();
        path
    }

    /// Lets this companion change taints, as the chart does if taints are configured.
    pub async fn may_taint(&self, companion: &Path) {
        let rule = json!({"apiGroups": [""], "resources": ["nodes"], "verbs": ["patch"]});
        let name = self.further("taints");
        let group = "rbac.authorization.k8s.io";
        let version = format!("{group}/v1");
        let metadata = json!({"name": name});
        if let Some(server) = &self.double {
            grant(server, "nodepulse", &rule);
        } else {
            let account = json!({
                "kind": "ServiceAccount", "name": "nodepulse", "namespace": NAMESPACE,
            });
            let role = json!({"apiGroup": group, "kind": "ClusterRole", "name": name});
            for object in [
                json!({
                    "apiVersion": version, "kind": "ClusterRole",
                    "metadata": metadata, "rules": [rule],
                }),
                json!({
                    "apiVersion": version, "kind": "ClusterRoleBinding",
                    "metadata": metadata, "roleRef": role, "subjects": [account],
                }),
            ] {
                self.admin.make(&collection(&object), &object).await;
            }
        }
        may_patch(companion, "").await;
    }

    /// Writes the configuration: the simulated machine, and these lines.
    pub fn configure(&self, more: &str) -> PathBuf {
        let config = format!(
            "apiVersion: nodepulse.dev/v1alpha1\nkind: NodepulseConfiguration\nhostRoot: {}\n\
             nodeIP: 0.0.0.0\nnodeStatusUpdateFrequency: 1s\nnodeStatusReportFrequency: 5m\nkernel: {{tier: files}}\npsi: {{enabled: false}}\n\
             allowReadyWithoutRuntime: true\nevictionPressureTransitionPeriod: 1s\n{more}",
            self.host.path().display()
        );
        let path = self.dir.path().join("config.yaml");
        let new = path.with_extension("new");
        std::fs::write(&new, config).unwrap();
        std::fs::rename(new, &path).unwrap();
        path
    }

    /// The arguments of `command` about the Node.
    pub fn args(&self, command: &str, mode: &str, kubeconfig: &Path) -> Vec<String> {
        let config = self.dir.path().join("config.yaml");
        let [config, kubeconfig] = [&config, kubeconfig].map(|path| path.display().to_string());
        let flags = [
            ("--mode", mode),
            ("--config", &config),
            ("--kubeconfig", &kubeconfig),
            ("--node-name", &self.name),
        ];
        let flags = flags.into_iter().flat_map(|(flag, value)| [flag, value]);
        std::iter::once(command)
            .chain(flags)
            .map(str::to_owned)
            .collect()
    }

    pub fn run(&self, mode: &str, kubeconfig: &Path, config: &str) -> Process {
        self.configure(config);
        Process::start(self.args("run", mode, kubeconfig))
    }
}

/// Waits until a real server has taken note of the roles that these credentials have.
async fn may_patch(file: &Path, subresource: &str) {
    let asked = json!({"verb": "patch", "resource": "nodes", "subresource": subresource});
    may(file, &asked).await;
}

async fn may(file: &Path, asked: &Value) {
    let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let caller = Caller::from_file(file).await;
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": asked},
    });
    until("the role is known", async || {
        let (_, review) = caller.post(reviews, &review).await;
        (review["status"]["allowed"] == true).then_some(())
    })
    .await;
}

/// Whether a name is a scenario's whole name, that of another of its objects, or of an Event.
pub fn is_of(name: &str, scenario: &str) -> bool {
    let rest = name.strip_prefix(scenario);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '.']))
}
