//! Prepares pods on this kernel and at an API server, and an agent; kills one process at a time.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use super::message::Facts;
use super::sizes::{
    CONTAINER, GROUP, HELPER, LEFT, MORE, Neighbour, POD, PROXY, available, neighbours,
};
use super::{Combination, LimitOf, Outcome, Qos, Site};
use crate::api_server::ApiServer;
use crate::pod::Pod;
use crate::pod_kills::is_detailed;
use crate::process::{Process, node_mode_of};
use crate::provoke::cgroup::CgroupTree;
use crate::provoke::{Crowd, Running};
use crate::view::View;

const NODE: &str = "worker-1";
const ALL_PODS: &str = "kubepods";
/// The cgroup that uses up the memory of the node.
pub const HOG: &str = "hog.service";
/// The directory of the kubelet's links, by which the agent knows the names of containers.
const LINKS: &str = "/var/log/containers";
/// `oom_score_adj` of processes that are to be killed first. A process may raise its score,
/// whatever its pod's class.
const FIRST: i64 = 1000;
/// The minimum of a process that can be killed.
const LAST: i64 = -999;
const GUARANTEED: i64 = -997;

pub struct Stage<'a> {
    site: Site<'a>,
    api: ApiServer,
    dir: tempfile::TempDir,
    agent: Option<Process>,
    neighbours: Vec<Neighbour>,
    /// Processes of the pods, which end before their cgroups are removed.
    crowds: Vec<Crowd>,
    /// Uses the memory of the node, except for [`LEFT`].
    ballast: Option<Crowd>,
    tree: CgroupTree,
    /// Number of pods so far.
    pods: usize,
}

/// A pod in which a process is killed.
struct Subject {
    pod: Pod,
    dir: String,
    web: String,
    helper: Crowd,
    proxy: Crowd,
    /// Further processes of a container that is killed as a group.
    group: Vec<Crowd>,
}

impl<'a> Stage<'a> {
    pub async fn set(site: Site<'a>) -> Self {
        // A slice, in which systemd would create a service.
        let name = format!("nodepulse-combinations-{}.slice", std::process::id());
        let mut stage = Self {
            site,
            api: ApiServer::start().await,
            dir: tempfile::tempdir().expect("a temporary directory"),
            agent: None,
            neighbours: neighbours(),
            crowds: Vec::new(),
            ballast: None,
            tree: CgroupTree::new(&name).expect("a cgroup for the test"),
            pods: 0,
        };
        if site.is_virtual {
            fs::write("/proc/sys/vm/overcommit_memory", "1").expect("memory is not reserved");
            // A huge page could be most of what a process is to allocate.
            let huge_pages = "/sys/kernel/mm/transparent_hugepage/enabled";
            fs::write(huge_pages, "never").expect("no huge pages");
            // As on a node; an emulated agent may be slower than the wait for the names of the API
            // server. An earlier stage may have left its links.
            let _absent = fs::remove_dir_all(LINKS);
            fs::create_dir_all(LINKS).expect("a directory for the links");
        }
        for neighbour in stage.neighbours.clone() {
            let (dir, ids) = stage.new_pod(neighbour.qos, neighbour.name);
            let web = format!("{dir}/{}", ids[0]);
            let score = match neighbour.qos {
                Qos::Guaranteed => stage.score(Qos::Guaranteed),
                Qos::Burstable | Qos::BestEffort => neighbour.score,
            };
            let crowd = stage.allocate(&web, score, neighbour.allocates);
            stage.crowds.push(crowd);
        }
        stage
    }

    pub fn is_version_2(&self) -> bool {
        self.tree.is_version_2()
    }

    /// Kills a process, and checks its Event. Returns the message.
    pub async fn kill(&mut self, combination: Combination) -> String {
        let subject = self.subject(combination);
        // Only a new agent may read details at once.
        if let Some(agent) = self.agent.take() {
            self.stop(agent).await;
        }
        self.agent = Some(self.started().await);
        let all_pods = self.limit(combination.limit, &subject);
        let victim = self.victim(combination, &subject);
        let event = self.event(combination, &subject).await;
        let message = event["message"].as_str().expect("a message").to_owned();
        let kills = self.tree.kills(&subject.web).expect("a count of kills");
        let group = subject.group.iter().map(Crowd::id);
        let group = group.chain([subject.helper.id()]).collect();
        Facts {
            combination,
            all_pods,
            proxy: subject.proxy.id(),
            helper: subject.helper.id(),
            group,
            kills,
            neighbours: &self.neighbours,
        }
        .check(&message);
        self.tree.unlimit(ALL_PODS).expect("no limit");
        subject.pod.delete(&self.api);
        drop(victim);
        message
    }

    /// Kills a process of the service because the node is out of memory, and checks its Event on
    /// the Node of an agent alongside a kubelet. Returns the message.
    pub async fn kill_in_service(&mut self) -> String {
        let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": NODE } });
        self.api.put_object(node);
        let agent = self.agent_in(&["run", "--mode", "companion", "--node-name", NODE]);
        let patience = self.site.patience;
        agent
            .wait_for_line("OOM kill source selected", patience)
            .await;
        self.fill_node();
        let hog = self.tree.dir(HOG);
        let hog = hog.to_str().expect("a plain path");
        let (first, more) = (FIRST.to_string(), MORE.to_string());
        let victim = self
            .site
            .provoke
            .start(&["score", &first, "eat", hog, &more])
            .expect("a process");
        let used = format!("Most memory was used by {HOG} (");
        let found = |api: &ApiServer| {
            let messages = View::of(api, NODE).messages("OOMKilling");
            messages.into_iter().find(|message| message.contains(&used))
        };
        let what = "an Event that names the service";
        let message = self.api.wait_for(patience * 2, what, found).await;
        for part in [
            "Process ",
            "because the node was out of memory. Limit hog.service with MemoryMax=, ",
            "; outside pods: ",
        ] {
            assert!(message.contains(part), "{part}: {message}");
        }
        let messages = View::of(&self.api, NODE).messages("OOMKilling");
        assert_eq!(messages.len(), 1, "{messages:?}");
        drop(victim);
        self.stop(agent).await;
        message
    }

    /// Waits for the only Event of the pod, with its details and with all processes of a group.
    async fn event(&self, combination: Combination, subject: &Subject) -> Value {
        // Includes the helper, and the process that requests more.
        let number = match subject.group.len() {
            0 => String::new(),
            others => format!(" (at least {} processes together)", others + 2),
        };
        // If the whole cgroup that reached its limit was killed, there may be no details.
        let is_whole = !subject.group.is_empty() && combination.limit == LimitOf::Container;
        let complete = |event: &Value| {
            let message = event["message"].as_str().unwrap_or_default();
            message.contains(&number) && (is_whole || is_detailed(message))
        };
        let found = |api: &ApiServer| subject.pod.events(api).into_iter().find(complete);
        let patience = self.site.patience;
        let event = self.api.wait_for(patience * 2, "a complete Event", found);
        let event = tokio::time::timeout(patience, event).await;
        let all = subject.pod.events(&self.api);
        let event = event.unwrap_or_else(|_| panic!("no Event{number} with details: {all:?}"));
        assert_eq!(all.len(), 1, "{all:?}");
        assert_eq!(
            (&event["type"], &event["reason"], &event["count"]),
            (&"Warning".into(), &"OOMKilled".into(), &1.into()),
            "{event}"
        );
        // The name of a link does not contain in which list of the pod the container is.
        let container = &event["involvedObject"]["fieldPath"];
        let by_link = self.site.is_virtual && container.is_null();
        assert!(by_link || container == "spec.containers{web}", "{event}");
        event
    }

    /// Creates the cgroups of a pod, and the pod. Returns its directory and the ids of its
    /// containers.
    fn new_pod(&mut self, qos: Qos, name: &str) -> (String, [String; 2]) {
        let n = self.pods;
        self.pods += 1;
        let uid = format!("{n:08x}-1f4b-4a62-9b0e-0f7c0f5d8a11");
        let ids = [0, 1].map(|container| format!("{n:032x}{container:032x}"));
        let dir = format!("{}/pod{uid}", qos.dir());
        for id in &ids {
            self.tree.add(format!("{dir}/{id}")).expect("a cgroup");
        }
        let mut pod = Pod::new("shop", name, &uid);
        for (container, id) in ["web", "proxy"].into_iter().zip(&ids) {
            pod = pod.container(container, id);
            // A real kubelet may use the directory of this machine.
            if self.site.is_virtual {
                let link = format!("{LINKS}/{name}_shop_{container}-{id}.log");
                symlink("/var/log/pods/0.log", link).expect("a link");
            }
        }
        pod.put(&self.api);
        (dir, ids)
    }

    fn subject(&mut self, combination: Combination) -> Subject {
        let name = combination.name();
        let (dir, ids) = self.new_pod(combination.qos, &name);
        let uid = dir.rsplit_once("/pod").map_or("", |(_, uid)| uid);
        let pod = Pod::new("shop", &name, uid);
        let [web, proxy] = ids.map(|id| format!("{dir}/{id}"));
        let score = self.score(combination.qos);
        let mut group = Vec::new();
        if combination.outcome == Outcome::WholeContainer {
            self.tree.kill_together(&web).expect("a group");
            group.extend((0..GROUP).map(|_| self.allocate(&web, score, 0)));
        }
        Subject {
            group,
            helper: self.allocate(&web, score, HELPER),
            proxy: self.allocate(&proxy, score, PROXY),
            pod,
            dir,
            web,
        }
    }

    /// Sets the limit that will be reached. Returns that of all pods.
    fn limit(&mut self, limit: LimitOf, subject: &Subject) -> u64 {
        let set = |at: &str, bytes| self.tree.limit(at, bytes).expect("a limit");
        let mut all_pods = 0;
        match limit {
            LimitOf::Container => set(&subject.web, CONTAINER),
            LimitOf::Pod => set(&subject.dir, POD),
            LimitOf::AllPods => {
                all_pods = self.tree.usage(ALL_PODS).expect("memory in use") + LEFT;
                set(ALL_PODS, all_pods);
            }
            LimitOf::Node => self.fill_node(),
        }
        all_pods
    }

    /// Uses the node's memory except for [`LEFT`].
    fn fill_node(&mut self) {
        if self.ballast.is_none() {
            self.tree.add(HOG).expect("a cgroup");
            let bytes = available().saturating_sub(LEFT);
            self.ballast = Some(self.allocate(HOG, LAST, bytes));
        }
    }

    fn allocate(&self, below: &str, score: i64, bytes: u64) -> Crowd {
        let crowd = self
            .site
            .provoke
            .allocate_with_score(&self.tree.dir(below), score, bytes);
        crowd.expect("a process with memory")
    }

    /// Starts the process that will be killed.
    fn victim(&self, combination: Combination, subject: &Subject) -> Running {
        let web = self.tree.dir(&subject.web);
        let web = web.to_str().expect("a plain path");
        let class = self.score(combination.qos).to_string();
        let first = match combination.limit {
            LimitOf::Container | LimitOf::Pod => class.clone(),
            LimitOf::AllPods | LimitOf::Node => FIRST.to_string(),
        };
        let more = MORE.to_string();
        let eat = ["score", &first, "eat", web, &more];
        let around: &[&str] = match combination.outcome {
            Outcome::MainProcess | Outcome::WholeContainer => &["namespace"],
            Outcome::ChildProcess => &["score", &class, "namespace", "main", web],
        };
        let words = [around, &eat].concat();
        self.site.provoke.start(&words).expect("a process")
    }

    /// Limits [`score`]: without `CAP_SYS_RESOURCE`, a process cannot lower it below this one's.
    fn score(&self, qos: Qos) -> i64 {
        let least = if self.site.is_virtual { LAST } else { 0 };
        score(qos).max(least)
    }

    async fn started(&self) -> Process {
        let args = node_mode_of(NODE, "127.0.0.1", &[]);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let agent = self.agent_in(&args);
        let patience = self.site.patience;
        agent
            .wait_for_line("OOM kill source selected", patience)
            .await;
        View::of(&self.api, NODE).settled(patience).await;
        agent
    }

    /// Starts an agent with these arguments, and with the cgroups and the API server of the stage.
    fn agent_in(&self, args: &[&str]) -> Process {
        let kubeconfig = self.api.node_kubeconfig(self.dir.path(), NODE);
        let state = self.dir.path().join("state");
        let [kubeconfig, state] = [kubeconfig, state].map(|path| path.display().to_string());
        let tree = self.tree.path("");
        let further = [
            ["--cgroup-root", &tree],
            ["--kubeconfig", &kubeconfig],
            ["--state-directory", &state],
        ];
        let args = [args, further.as_flattened()].concat();
        Process::start_program(self.site.program, args)
    }

    async fn stop(&self, agent: Process) {
        agent.terminate();
        let ended = agent.ends(self.site.patience).await;
        assert_eq!(ended.code, Some(0), "{}", ended.stderr.join("\n"));
    }
}

/// Returns the kubelet's `oom_score_adj` of processes in a pod of this class.
const fn score(qos: Qos) -> i64 {
    match qos {
        Qos::Guaranteed => GUARANTEED,
        Qos::Burstable => 500,
        Qos::BestEffort => 1000,
    }
}
