//! The cluster and the user, as kubectl finds them: `--kubeconfig`, `KUBECONFIG`, `~/.kube/config`,
//! and the service account of a pod.

use std::env::{split_paths, var_os};
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Uri;
use hyper_util::client::proxy::matcher::Intercept;
use kube::config::{Cluster, KubeConfigOptions, Kubeconfig, KubeconfigError};

use crate::arguments::Connection;
use crate::failure::{Failure, chain, one_line};
use crate::proxy;

/// Timeout for opening a connection.
const CONNECT: Duration = Duration::from_secs(5);

/// Maximum number of contexts that a failure names.
const NAMED: usize = 8;

/// The configuration of a client, and the proxy that it has to use.
pub async fn read(connection: &Connection) -> Result<(kube::Config, Option<Intercept>), Failure> {
    let (mut config, proxy) = match files(connection.kubeconfig.as_deref())? {
        Some(kubeconfig) => of_context(kubeconfig, connection.context.as_deref()).await?,
        None => in_cluster(connection)?,
    };
    // The library applies NO_PROXY to the address of the proxy.
    config.proxy_url = None;
    if let Some(namespace) = &connection.namespace {
        config.default_namespace.clone_from(namespace);
    }
    config.connect_timeout = Some(CONNECT);
    // A failure is reported at once.
    config.default_retry = false;
    Ok((config, proxy))
}

/// Merges all kubeconfig files. Returns `None` if there is no file.
fn files(given: Option<&Path>) -> Result<Option<Kubeconfig>, Failure> {
    if let Some(path) = given {
        return file(path).map(Some);
    }
    let variable = var_os("KUBECONFIG").filter(|value| !value.is_empty());
    let paths: Vec<PathBuf> = match variable {
        Some(value) => split_paths(&value)
            .filter(|path| !path.as_os_str().is_empty())
            .collect(),
        None => var_os("HOME")
            .map(|home| Path::new(&home).join(".kube/config"))
            .into_iter()
            .collect(),
    };
    let mut all: Option<Kubeconfig> = None;
    // Like kubectl, which skips files that do not exist.
    for path in paths.iter().filter(|path| path.exists()) {
        let next = file(path)?;
        let merged = match all {
            None => Ok(next),
            Some(before) => before.merge(next),
        };
        all = Some(merged.map_err(|err| unusable(path, &chain(&err)))?);
    }
    Ok(all)
}

fn file(path: &Path) -> Result<Kubeconfig, Failure> {
    Kubeconfig::read_from(path).map_err(|err| match err {
        // The error of the library repeats the path.
        KubeconfigError::ReadConfig(source, _) => unusable(path, &source.to_string()),
        err => unusable(path, &chain(&err)),
    })
}

fn unusable(path: &Path, why: &str) -> Failure {
    let path = one_line(&path.display().to_string());
    Failure::Kubeconfig(format!("kubeconfig {path}: {why}"))
}

async fn of_context(
    kubeconfig: Kubeconfig,
    context: Option<&str>,
) -> Result<(kube::Config, Option<Intercept>), Failure> {
    let contexts = kubeconfig.contexts.iter();
    let contexts: Vec<String> = contexts.map(|context| one_line(&context.name)).collect();
    let known = match contexts.len() {
        0 => "the kubeconfig has none".to_owned(),
        count => {
            let mut named: Vec<_> = contexts.iter().take(NAMED).map(String::as_str).collect();
            if count > NAMED {
                named.push("…");
            }
            format!("the kubeconfig has {}", named.join(", "))
        }
    };
    let used = context.or(kubeconfig.current_context.as_deref());
    match used {
        None | Some("") => {
            let why = format!("no current context: choose one with --context ({known})");
            return Err(Failure::Kubeconfig(why));
        }
        Some(name) if !kubeconfig.contexts.iter().any(|one| one.name == name) => {
            let why = format!("context {} does not exist: {known}", one_line(name));
            return Err(Failure::Kubeconfig(why));
        }
        Some(_) => {}
    }
    // First, because the library reads the variables of proxies, too.
    let proxy = proxy_of(&kubeconfig, used.unwrap_or_default())?;
    let options = KubeConfigOptions {
        context: context.map(str::to_owned),
        ..KubeConfigOptions::default()
    };
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await;
    let config =
        config.map_err(|err| Failure::Kubeconfig(format!("kubeconfig: {}", chain(&err))))?;
    if !matches!(config.cluster_url.scheme_str(), Some("https" | "http")) {
        let url = one_line(&config.cluster_url.to_string());
        let why = format!("kubeconfig: server is {url}, which does not start with https://");
        return Err(Failure::Kubeconfig(why));
    }
    Ok((config, proxy))
}

fn proxy_of(kubeconfig: &Kubeconfig, context: &str) -> Result<Option<Intercept>, Failure> {
    let mut contexts = kubeconfig.contexts.iter();
    let context = contexts.find(|one| one.name == context);
    let cluster = context.and_then(|context| Some(context.context.as_ref()?.cluster.as_str()));
    let mut clusters = kubeconfig.clusters.iter();
    let cluster = clusters.find(|one| Some(one.name.as_str()) == cluster);
    let cluster: Option<&Cluster> = cluster.and_then(|cluster| cluster.cluster.as_ref());
    let server = cluster.and_then(|cluster| cluster.server.as_deref()?.parse::<Uri>().ok());
    match (cluster, server) {
        (Some(cluster), Some(server)) => proxy::of(cluster.proxy_url.as_deref(), &server),
        // Reported when the file is used.
        _ => Ok(None),
    }
}

fn in_cluster(connection: &Connection) -> Result<(kube::Config, Option<Intercept>), Failure> {
    if connection.context.is_none() && var_os("KUBERNETES_SERVICE_HOST").is_some() {
        let config = kube::Config::incluster()
            .map_err(|err| Failure::Kubeconfig(format!("service account: {}", chain(&err))))?;
        let proxy = proxy::of(None, &config.cluster_url)?;
        return Ok((config, proxy));
    }
    Err(Failure::Kubeconfig(
        "no kubeconfig: set KUBECONFIG or --kubeconfig, or create ~/.kube/config".to_owned(),
    ))
}
