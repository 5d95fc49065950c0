//! Connects to the API server of the demo's Node: the embedded one, or one given by its kubeconfig.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::{Method, Request};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::Value;

use super::NODE;
use crate::api_server::ApiServer;

/// Interval between reads of a given server. The agent's log has the times, so that the interval
/// does not change them.
const AGAIN: Duration = Duration::from_millis(100);

pub enum Cluster {
    /// The embedded server, which stops on drop.
    Embedded(Box<ApiServer>),
    Given(Given),
}

/// An API server given by its kubeconfig.
pub struct Given {
    client: kube::Client,
    url: String,
    kubeconfig: PathBuf,
}

impl Cluster {
    /// Opens the server in `kubeconfig`, otherwise the embedded one.
    pub async fn open(kubeconfig: Option<&Path>) -> Result<Self> {
        let Some(path) = kubeconfig else {
            return Ok(Self::Embedded(Box::new(ApiServer::start().await)));
        };
        let read = Kubeconfig::read_from(path).with_context(|| path.display().to_string())?;
        let options = KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(read, &options).await?;
        let given = Given {
            url: config.cluster_url.to_string(),
            client: kube::Client::try_from(config)?,
            kubeconfig: path.canonicalize()?,
        };
        let there = given
            .get(&node())
            .await
            .context("cannot reach the API server")?;
        ensure!(
            there.is_none(),
            "a Node {NODE} already exists; remove it with `kubectl delete node {NODE}`"
        );
        Ok(Self::Given(given))
    }

    /// Returns credentials for the agent; those of the embedded server are written to `dir`.
    pub fn kubeconfig(&self, dir: &Path) -> PathBuf {
        match self {
            Self::Embedded(api) => api.node_kubeconfig(dir, NODE),
            Self::Given(given) => given.kubeconfig.clone(),
        }
    }

    pub fn url(&self) -> String {
        match self {
            Self::Embedded(api) => api.url(),
            Self::Given(given) => given.url.clone(),
        }
    }

    /// Returns the stored Node; `None` if there is none, or the server does not respond.
    pub async fn node(&self) -> Option<Value> {
        match self {
            Self::Embedded(api) => api.object(&node()),
            Self::Given(given) => given.get(&node()).await.ok().flatten(),
        }
    }

    /// Waits until `pick` returns a value for the Node, and returns that.
    pub async fn node_where<T>(
        &self,
        limit: Duration,
        pick: impl Fn(&Value) -> Option<T>,
    ) -> Option<T> {
        match self {
            Self::Embedded(api) => {
                let read = |api: &ApiServer| pick(&api.object(&node())?);
                let search = api.wait_for(limit * 2, "node", read);
                tokio::time::timeout(limit, search).await.ok()
            }
            Self::Given(given) => given.wait(limit, &node(), pick).await,
        }
    }

    /// Waits for an Event in the default namespace for which `wanted` is true.
    pub async fn event_where(
        &self,
        limit: Duration,
        wanted: impl Fn(&Value) -> bool,
    ) -> Option<Value> {
        const EVENTS: &str = "/api/v1/namespaces/default/events";
        match self {
            Self::Embedded(api) => {
                let read = |api: &ApiServer| api.list(EVENTS).into_iter().find(&wanted);
                let search = api.wait_for(limit * 2, "event", read);
                tokio::time::timeout(limit, search).await.ok()
            }
            Self::Given(given) => {
                let events = format!("{EVENTS}?fieldSelector=involvedObject.name%3D{NODE}");
                let pick = |list: &Value| {
                    let items = list.pointer("/items")?.as_array()?;
                    items.iter().find(|event| wanted(event)).cloned()
                };
                given.wait(limit, &events, pick).await
            }
        }
    }

    /// Removes the Node, and with it its Lease, after the agent has ended.
    /// If a given server refuses it, the Node remains, and the error contains the command that
    /// removes it.
    pub async fn clean_up(&self) -> Result<()> {
        match self {
            Self::Embedded(_) => Ok(()),
            Self::Given(given) => given
                .request(Method::DELETE, &node())
                .await
                .map(drop)
                .with_context(|| format!("the Node remains; kubectl delete node {NODE}")),
        }
    }
}

impl Given {
    async fn request(&self, method: Method, path: &str) -> kube::Result<Value> {
        let request = Request::builder().method(method).uri(path);
        let request = request.body(Vec::new()).expect("a request without a body");
        self.client.request(request).await
    }

    async fn get(&self, path: &str) -> kube::Result<Option<Value>> {
        match self.request(Method::GET, path).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            answer => answer.map(Some),
        }
    }

    async fn wait<T>(
        &self,
        limit: Duration,
        path: &str,
        pick: impl Fn(&Value) -> Option<T>,
    ) -> Option<T> {
        let mut reads = tokio::time::interval(AGAIN);
        let search = async {
            loop {
                reads.tick().await;
                let found = self.get(path).await.ok().flatten();
                if let Some(picked) = found.as_ref().and_then(&pick) {
                    return picked;
                }
            }
        };
        tokio::time::timeout(limit, search).await.ok()
    }
}

fn node() -> String {
    format!("/api/v1/nodes/{NODE}")
}
