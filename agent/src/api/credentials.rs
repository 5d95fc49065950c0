//! Who we are to the API server, and where it is: checked whole before the first request.

#![forbid(unsafe_code)]

use std::path::Path;

use kube::config::{KubeConfigOptions, Kubeconfig};

use super::ApiError;

/// What a kubeconfig must hold, for error messages.
pub(super) const EXAMPLE: &str = "{apiVersion: v1, kind: Config, current-context: node, \
    contexts: [{name: node, context: {cluster: c, user: u}}], \
    clusters: [{name: c, cluster: {server: \"https://10.0.0.1:6443\", \
    certificate-authority: /etc/kubernetes/pki/ca.crt}}], \
    users: [{name: u, user: {client-certificate: /path/to.crt, client-key: /path/to.key}}]}";

/// Where credentials come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source<'a> {
    /// A kubeconfig file.
    Kubeconfig(&'a Path),
    /// The service account of the pod that we run in.
    InCluster,
}

/// Reads credentials. Sends nothing.
///
/// An exec plugin is not run here but when the client is built, on the calling thread and without
/// a limit; who allows such plugins must build the client on a thread that may wait.
///
/// # Errors
///
/// [`ApiError::Kubeconfig`] and [`ApiError::InCluster`], with what is missing or malformed.
pub async fn load(source: Source<'_>) -> Result<kube::Config, ApiError> {
    match source {
        Source::Kubeconfig(path) => kubeconfig(path).await,
        Source::InCluster => kube::Config::incluster().map_err(|err| ApiError::InCluster {
            why: one_line(&err.to_string()),
        }),
    }
}

async fn kubeconfig(path: &Path) -> Result<kube::Config, ApiError> {
    let wrong = |why: String| ApiError::Kubeconfig {
        path: path.display().to_string(),
        why: one_line(&why),
    };
    let file = Kubeconfig::read_from(path).map_err(|err| wrong(err.to_string()))?;
    let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
        .await
        .map_err(|err| wrong(err.to_string()))?;
    // `10.0.0.1:6443` alone is a valid URI too, and would fail at the first request.
    if !matches!(config.cluster_url.scheme_str(), Some("https" | "http")) {
        let url = &config.cluster_url;
        return Err(wrong(format!(
            "server is {url}, which does not start with https://"
        )));
    }
    if let Some(proxy) = &config.proxy_url {
        return Err(wrong(format!(
            "a proxy ({proxy}) is set there or in HTTPS_PROXY, and proxies are not supported"
        )));
    }
    Ok(config)
}

/// Parsers of YAML draw pictures over several lines.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "apiVersion: v1
kind: Config
current-context: node
contexts: [{name: node, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: \"https://10.0.0.1:6443\"}}]
users: [{name: u, user: {token: t}}]
";

    async fn load_text(name: &str, text: &str) -> Result<kube::Config, ApiError> {
        let dir = std::env::temp_dir().join(format!("nodepulse-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join(name);
        std::fs::write(&path, text).unwrap();
        load(Source::Kubeconfig(&path)).await
    }

    #[tokio::test]
    async fn a_kubeconfig_that_cannot_work_is_refused_by_name_with_an_example() {
        let rows = [
            (
                "malformed",
                GOOD.replace("clusters: [", "clusters: [["),
                "parse",
            ),
            (
                "no-context",
                GOOD.replace("current-context: node", ""),
                "current context",
            ),
            (
                "other-context",
                GOOD.replace("-context: node", "-context: x"),
                "context: x",
            ),
            (
                "no-cluster",
                GOOD.replace("cluster: c,", "cluster: x,"),
                "cluster of context",
            ),
            (
                "no-scheme",
                GOOD.replace("https://", ""),
                "does not start with https://",
            ),
            (
                "bad-ca",
                GOOD.replace("server:", "certificate-authority-data: '#', server:"),
                "base64",
            ),
            ("empty", String::new(), "current context"),
        ];
        for (name, text, expected) in rows {
            let err = load_text(name, &text).await.unwrap_err().to_string();
            assert!(err.contains(name), "{name}: {err}");
            assert!(err.contains(expected), "{name}: {err}");
            assert!(
                err.contains("server: \"https://10.0.0.1:6443\""),
                "{name}: {err}"
            );
            assert!(!err.contains('\n'), "{name}: {err}");
        }
    }

    #[tokio::test]
    async fn a_missing_kubeconfig_is_named() {
        let source = Source::Kubeconfig(Path::new("/no/such/kubeconfig"));
        let err = load(source).await.unwrap_err().to_string();
        assert!(err.contains("kubeconfig /no/such/kubeconfig"), "{err}");
        assert!(err.contains("No such file"), "{err}");
    }

    #[tokio::test]
    async fn a_kubeconfig_that_can_work_is_read() {
        let config = load_text("good", GOOD).await.unwrap();
        assert_eq!(config.cluster_url.to_string(), "https://10.0.0.1:6443/");
        let connector = crate::api::transport::tcp_tls(&config).unwrap();
        let deadline = std::time::Duration::from_secs(10);
        crate::api::Client::new(config, connector, deadline).unwrap();
    }
}
