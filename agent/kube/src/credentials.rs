//! The address of the API server and the credentials for it, checked completely before the first
//! request.

#![forbid(unsafe_code)]
// Sums and products of durations panic on overflow, and these numbers are external.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;
use std::time::Duration;

use k8s_openapi::ByteString;
use kube::config::{AuthInfo, KubeConfigOptions};
use nodepulse_core::escape::one_line;
use nodepulse_io::clock::Clock;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::stream_limit::StreamLimit;
use super::{ApiError, Connector, transport};

pub(super) mod authorization;
pub mod bootstrap;
mod files;
mod plugin;

use authorization::Authorization;
use files::{FileFault, Inlined, TokenFile};
use plugin::Issued;
pub(super) use plugin::RunningPlugin;

/// Timeout of the program in a kubeconfig.
pub(super) const PLUGIN_LIMIT: Duration = Duration::from_secs(10);
/// The variables with the address of the API server, which the kubelet sets in every container.
const SERVER: [&str; 2] = ["KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"];
/// Credentials with an expiry are renewed this long before it.
const MARGIN: Duration = Duration::from_mins(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CredentialSource<'a> {
    Kubeconfig(&'a Path),
    /// The same with another user: this file with a certificate and its key.
    Pair {
        kubeconfig: &'a Path,
        /// The file with the certificate and the key, in PEM.
        pair: &'a Path,
    },
    /// The service account of this pod.
    InCluster,
}

/// Whether the sandbox permits to run a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Programs {
    /// It may run.
    Permitted,
    /// It may not: the agent has to be started again.
    Refused,
}

/// What connections are created from.
pub(super) struct Credentials {
    pub(super) config: kube::Config,
    connector: Connector,
    /// Whether a program issued them.
    pub(super) plugin: bool,
    /// Equal for equal credentials, so that no second copy of a key is kept for comparison.
    pub(super) fingerprint: u64,
    /// Set if there is a token or a password.
    pub(super) authorization: Option<Authorization>,
    pub(super) renew_at: Option<Instant>,
}

impl Credentials {
    pub(super) fn of_config(config: kube::Config, connector: Connector) -> Result<Self, ApiError> {
        let authorization = authorization(None, &config.auth_info)?;
        Ok(Self {
            authorization,
            ..Self::fixed(config, connector)
        })
    }

    /// Credentials that never change, for a server that asks for none.
    pub(super) const fn fixed(config: kube::Config, connector: Connector) -> Self {
        Self {
            config,
            connector,
            plugin: false,
            fingerprint: 0,
            authorization: None,
            renew_at: None,
        }
    }

    pub(super) fn with_user_of(mut self, known: &Self) -> Result<Self, ApiError> {
        self.config.auth_info = known.config.auth_info.clone();
        self.authorization.clone_from(&known.authorization);
        self.connector = transport::tcp_tls(&self.config)?;
        self.fingerprint = fingerprint(&self.config);
        Ok(self)
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.fingerprint == other.fingerprint && self.authorization == other.authorization
    }

    /// Opens no connection yet. Must be called in a runtime.
    pub(super) fn connect(&self, limit: StreamLimit) -> Result<kube::Client, ApiError> {
        let (connector, authorization) = (self.connector.clone(), self.authorization.clone());
        transport::connect(&self.config, connector, authorization, limit)
    }

    pub(super) fn is_expiring(&self) -> bool {
        self.renew_at.is_some_and(|at| at <= Instant::now())
    }
}

/// Reads credentials and prepares them; runs the program that issues them, if any, within
/// [`PLUGIN_LIMIT`], and kills it if `running` is ended before. Blocks, and is done when first
/// polled. Sends nothing.
pub(super) async fn access(
    source: CredentialSource<'_>,
    running: &RunningPlugin,
) -> Result<Credentials, ApiError> {
    let Source {
        mut config,
        token,
        had_files,
    } = read(source).await?;
    let exec = config.auth_info.exec.take();
    let plugin = exec.is_some();
    // What another program has written may be complete the next time.
    let unusable = |err: ApiError| match err {
        ApiError::Setup { what, source } if had_files || plugin => ApiError::Unreadable {
            what: format!("cannot use {what}"),
            why: one_line(&source.to_string()),
        },
        err => err,
    };
    let mut renew_at = None;
    if let Some(exec) = exec {
        if !running.is_permitted() {
            return Err(ApiError::NeedsRestart);
        }
        let run = plugin::run(&exec, PLUGIN_LIMIT, running);
        let issued = run.map_err(|why| ApiError::Unreadable {
            what: "users[].user.exec".to_owned(),
            why: one_line(&why),
        })?;
        renew_at = renewal(&issued);
        config.auth_info = auth_info(issued).map_err(unusable)?;
    }
    let connector = transport::tcp_tls(&config).map_err(unusable)?;
    let authorization = authorization(token, &config.auth_info).map_err(unusable)?;
    let fingerprint = fingerprint(&config);
    Ok(Credentials {
        config,
        connector,
        plugin,
        fingerprint,
        authorization,
        renew_at,
    })
}

fn authorization(
    token: Option<TokenFile>,
    user: &AuthInfo,
) -> Result<Option<Authorization>, ApiError> {
    Authorization::new(token, user).map_err(|source| ApiError::Setup {
        what: "the token",
        source: source.into(),
    })
}

/// Why the output of a program is not a credential.
pub(super) fn parse_printed(printed: &[u8]) -> Result<(), String> {
    plugin::parse(printed).map(drop)
}

/// When to renew: a minute before the expiry, or after four fifths of a short time.
fn renewal(issued: &Issued) -> Option<Instant> {
    let left = issued.ends?.duration_since(Clock::kernel().now().wall);
    let left = left.unwrap_or_default();
    let wait = left.saturating_sub(MARGIN.min(left.checked_div(5).unwrap_or_default()));
    // An expiry that the clock cannot represent counts as none.
    Instant::now().checked_add(wait)
}

fn auth_info(issued: Issued) -> Result<AuthInfo, ApiError> {
    let mut user = json!({});
    let mut set = |key: &str, value: Value| {
        if let Some(user) = user.as_object_mut() {
            user.insert(key.to_owned(), value);
        }
    };
    if let Some(token) = issued.token {
        set("token", json!(token));
    }
    if let Some((certificate, key)) = issued.identity {
        // In base 64, as in a kubeconfig.
        let data = |pem: String| json!(ByteString(pem.into_bytes()));
        set("client-certificate-data", data(certificate));
        set("client-key-data", data(key));
    }
    serde_json::from_value(user).map_err(|source| ApiError::Setup {
        what: "the output of users[].user.exec",
        source: source.into(),
    })
}

/// A hash of everything that is sent or checked, except a token in a file.
fn fingerprint(config: &kube::Config) -> u64 {
    let mut hasher = DefaultHasher::new();
    let user = &config.auth_info;
    config.cluster_url.to_string().hash(&mut hasher);
    config.root_cert.hash(&mut hasher);
    // A user that was read can be written.
    serde_json::to_string(user)
        .unwrap_or_default()
        .hash(&mut hasher);
    hasher.finish()
}

/// Whether a program issues the credentials of `source`. Runs nothing.
pub(super) async fn have_a_plugin(source: CredentialSource<'_>) -> Result<bool, ApiError> {
    Ok(read(source).await?.config.auth_info.exec.is_some())
}

/// A kubeconfig or service account with all files that it refers to.
struct Source {
    config: kube::Config,
    token: Option<TokenFile>,
    had_files: bool,
}

/// Reads credentials and all files that contain them. Sends nothing, and runs nothing.
async fn read(source: CredentialSource<'_>) -> Result<Source, ApiError> {
    match source {
        CredentialSource::Kubeconfig(path) => kubeconfig(path, None).await,
        CredentialSource::Pair {
            kubeconfig: path,
            pair,
        } => kubeconfig(path, Some(pair)).await,
        CredentialSource::InCluster => in_cluster().await,
    }
}

async fn in_cluster() -> Result<Source, ApiError> {
    let wrong = |why: String| ApiError::InCluster {
        why: one_line(&why),
    };
    let [host, port] = SERVER.map(|name| variable(name).ok_or(name));
    let unset = |name| wrong(format!("{name} is not set"));
    let (host, port) = (host.map_err(unset)?, port.map_err(unset)?);
    let dir = Path::new(files::SERVICE_ACCOUNT);
    let unreadable = |why: String| ApiError::Unreadable {
        what: "in-cluster service account".to_owned(),
        why: format!(
            "{}; run in a pod with automountServiceAccountToken, or set --kubeconfig",
            one_line(&why)
        ),
    };
    let read = files::service_account(dir, &host, &port);
    let mut source = with_config(read, &wrong, unreadable).await?;
    // The proxy of the environment is for external addresses.
    source.config.proxy_url = None;
    Ok(source)
}

/// `wrong` makes the error that a person has to correct, and `unreadable` the one that can pass.
async fn with_config(
    read: Result<Inlined, FileFault>,
    wrong: &impl Fn(String) -> ApiError,
    unreadable: impl Fn(String) -> ApiError,
) -> Result<Source, ApiError> {
    let read = read.map_err(|fault| match fault {
        FileFault::Invalid(why) => wrong(why),
        FileFault::Unreadable(why) => unreadable(why),
    })?;
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(read.kubeconfig, &options).await;
    Ok(Source {
        config: config.map_err(|err| wrong(err.to_string()))?,
        token: read.token,
        had_files: read.had_files,
    })
}

#[expect(
    clippy::disallowed_methods,
    reason = "within a pod only the kubelet provides the address of the API server"
)]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

async fn kubeconfig(path: &Path, pair: Option<&Path>) -> Result<Source, ApiError> {
    let wrong = |why: String| ApiError::Kubeconfig {
        path: path.display().to_string(),
        why: one_line(&why),
    };
    let unreadable = |why: String| ApiError::Unreadable {
        what: format!("kubeconfig {}", path.display()),
        why: one_line(&why),
    };
    let source = with_config(files::kubeconfig(path, pair), &wrong, unreadable).await?;
    let config = &source.config;
    // `10.0.0.1:6443` alone is a valid URI too, but would fail at the first request.
    if !matches!(config.cluster_url.scheme_str(), Some("https" | "http")) {
        let url = &config.cluster_url;
        return Err(wrong(format!(
            "server is {url}, which does not start with https://"
        )));
    }
    let user = &config.auth_info;
    if let Some(why) = user.exec.as_ref().and_then(plugin::problem) {
        return Err(wrong(why.to_owned()));
    }
    if user.auth_provider.is_some() {
        let why = "users[].user.auth-provider was removed in Kubernetes 1.26: set the program \
                   in users[].user.exec";
        return Err(wrong(why.to_owned()));
    }
    if let Some(proxy) = &config.proxy_url {
        return Err(wrong(format!(
            "a proxy ({proxy}) is set in the kubeconfig or in HTTPS_PROXY, and proxies are not supported"
        )));
    }
    Ok(source)
}

#[cfg(test)]
mod tests {
    use nodepulse_linux::host::scratch::Scratch;

    use super::*;

    const GOOD: &str = "apiVersion: v1
kind: Config
current-context: node
contexts: [{name: node, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: \"https://10.0.0.1:6443\"}}]
users: [{name: u, user: {token: t}}]
";

    /// Reads a kubeconfig, whose program may run.
    async fn accessed(path: &Path) -> Result<Credentials, ApiError> {
        let source = CredentialSource::Kubeconfig(path);
        access(source, &RunningPlugin::default()).await
    }

    #[tokio::test]
    async fn credentials_can_keep_their_user_when_the_server_changes() {
        let dir = Scratch::new();
        dir.write("config", GOOD);
        let path = dir.path().join("config");
        let known = accessed(&path).await.unwrap();
        let changed = GOOD.replace("token: t", "token: other");
        dir.write("config", changed.replace("10.0.0.1", "10.0.0.2"));
        let other = accessed(&path).await.unwrap();
        assert!(known.authorization != other.authorization);
        let kept = other.with_user_of(&known).unwrap();
        assert_eq!(kept.config.cluster_url.host(), Some("10.0.0.2"));
        assert!(kept.authorization == known.authorization);
        assert!(!kept.is_same(&known), "the server is another one");
    }

    async fn load_text(name: &str, text: &str) -> Result<kube::Config, ApiError> {
        let dir = Scratch::new();
        dir.write(name, text);
        let path = dir.path().join(name);
        read(CredentialSource::Kubeconfig(&path))
            .await
            .map(|read| read.config)
    }

    #[tokio::test]
    async fn an_unusable_kubeconfig_is_rejected_by_name_with_an_example() {
        #[rustfmt::skip]
        let rows = [
            ("no-context", GOOD.replace("current-context: node", ""), "current context"),
            ("other-context", GOOD.replace("-context: node", "-context: x"), "context: x"),
            ("no-cluster", GOOD.replace("cluster: c,", "cluster: x,"), "cluster of context"),
            ("no-scheme", GOOD.replace("https://", ""), "does not start with https://"),
            ("bad-ca", GOOD.replace("server:", "certificate-authority-data: '#', server:"), "base64"),
            ("auth-provider", GOOD.replace("token: t", "auth-provider: {name: gcp}"), "users[].user.exec"),
            ("interactive",
                GOOD.replace("token: t", "exec: {command: /bin/true, apiVersion: v1, interactiveMode: Always}"),
                "interactiveMode is Always"),
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
        let source = CredentialSource::Kubeconfig(Path::new("/no/such/kubeconfig"));
        let err = read(source).await.err().unwrap();
        assert!(matches!(err, ApiError::Unreadable { .. }), "{err:?}");
        let err = err.to_string();
        assert!(err.contains("kubeconfig /no/such/kubeconfig"), "{err}");
        assert!(err.contains("No such file"), "{err}");
    }

    #[tokio::test]
    async fn what_another_program_writes_can_pass_and_what_a_person_wrote_cannot() {
        let dir = Scratch::new();
        dir.write("garbage", "not a certificate");
        dir.write("empty", "");
        let file = |name: &str| dir.path().join(name).display().to_string();
        let user = |keys: String| GOOD.replace("token: t", &keys);
        //  name, the kubeconfig, whether it can pass
        #[rustfmt::skip]
        let rows = [
            ("no text", "\n".to_owned(), true),
            ("no YAML", "a: [".to_owned(), true),
            ("half of it", GOOD.replace("t}}]", "secret"), true),
            ("another form", "contexts: 7".to_owned(), true),
            ("no such token", user(format!("tokenFile: {}", file("none"))), true),
            ("an empty token", user(format!("tokenFile: {}", file("empty"))), true),
            ("a certificate that is not complete",
                user(format!("client-certificate: {0}, client-key: {0}", file("garbage"))), true),
            ("an inline certificate",
                user("client-certificate-data: bm90aGluZw==, client-key-data: bm90aGluZw==".to_owned()), false),
            ("a program that fails", user("exec: {command: /bin/false, apiVersion: v1}".to_owned()), true),
        ];
        for (name, text, passes) in rows {
            dir.write("kubeconfig", &text);
            let path = dir.path().join("kubeconfig");
            let err = accessed(&path).await.err().unwrap();
            let is = matches!(err, ApiError::Unreadable { .. });
            assert_eq!(is, passes, "{name}: {err:?}");
            assert!(!err.chain().contains("secret"), "{name}: {err}");
            if name == "a program that fails" {
                assert!(err.chain().contains("exit status: 1"), "{name}: {err}");
            }
        }
    }

    #[tokio::test]
    async fn a_program_is_not_run_if_the_sandbox_does_not_permit_it() {
        let dir = Scratch::new();
        let exec = "exec: {command: /bin/false, apiVersion: v1}";
        dir.write("kubeconfig", GOOD.replace("token: t", exec));
        let path = dir.path().join("kubeconfig");
        let source = CredentialSource::Kubeconfig(&path);
        let err = access(source, &RunningPlugin::forbidden()).await.err();
        assert!(matches!(err, Some(ApiError::NeedsRestart)), "{err:?}");
    }

    #[tokio::test]
    async fn requests_have_the_token_or_the_password_of_the_kubeconfig() {
        let dir = Scratch::new();
        dir.write("file", "in-a-file\n");
        let path = dir.path().join("kubeconfig");
        let file = dir.path().join("file").display().to_string();
        let exec = "exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/echo, args: \
                    ['{\"status\": {\"token\": \"printed\"}}']}";
        let password = "username: jane, password: p@ss";
        //  the user, and the header
        let rows = [
            ("token: t".to_owned(), Some("Bearer t")),
            (format!("tokenFile: {file}"), Some("Bearer in-a-file")),
            (format!("token: t, tokenFile: {file}"), Some("Bearer t")),
            (exec.to_owned(), Some("Bearer printed")),
            (password.to_owned(), Some("Basic amFuZTpwQHNz")),
            (format!("token: t, {password}"), Some("Basic amFuZTpwQHNz")),
            ("username: jane".to_owned(), None),
            (String::new(), None),
        ];
        for (user, expected) in rows {
            dir.write("kubeconfig", GOOD.replace("token: t", &user));
            let read = accessed(&path).await.unwrap();
            let request = http::Request::new(());
            let request = match &read.authorization {
                Some(authorization) => authorization.sign(request),
                None => request,
            };
            let header = request.headers().get(http::header::AUTHORIZATION);
            assert_eq!(header.map(|it| it.to_str().unwrap()), expected, "{user}");
            assert!(header.is_none_or(http::HeaderValue::is_sensitive), "{user}");
        }
        dir.write(
            "kubeconfig",
            GOOD.replace("token: t", "token: \"a\\u0007b\""),
        );
        let refused = accessed(&path).await.err().unwrap();
        assert!(refused.chain().contains("the token"), "{refused:?}");
    }

    #[tokio::test]
    async fn a_usable_kubeconfig_is_read() {
        let config = load_text("good", GOOD).await.unwrap();
        assert_eq!(config.cluster_url.to_string(), "https://10.0.0.1:6443/");
        let connector = crate::transport::tcp_tls(&config).unwrap();
        let deadline = std::time::Duration::from_secs(10);
        crate::Client::new(config, connector, deadline).unwrap();
    }
}
