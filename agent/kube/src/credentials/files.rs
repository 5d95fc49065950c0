//! The files with credentials: read here, within a limit, and passed to kube as data.
//!
//! kube reads files of any kind and size, and reads a token's file and the certificate authority of
//! a service account again for each request, on the only runtime thread.

#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};

use k8s_openapi::ByteString;
use kube::config::{AuthInfo, Cluster, Context, Kubeconfig, KubeconfigError};
use serde_json::{Map, Value, json};

use nodepulse_io::file::{self, FileError};

/// Of the user in a kubeconfig: the key for a file, and the key for its content.
const OF_USER: [(&str, &str); 2] = [
    ("client-certificate", "client-certificate-data"),
    ("client-key", "client-key-data"),
];

/// The mount path of a pod's service account.
pub(super) const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// A kubeconfig that refers to no file any more.
pub(super) struct Inlined {
    pub(super) kubeconfig: Kubeconfig,
    pub(super) token: Option<TokenFile>,
    /// It referred to files, which another program may be writing.
    pub(super) had_files: bool,
}

/// Why there are no credentials.
#[derive(Debug, thiserror::Error)]
pub(super) enum FileFault {
    /// A person has to change it.
    #[error("{0}")]
    Invalid(String),
    /// The kernel refused it, or another program has not written it yet.
    #[error("{0}")]
    Unreadable(String),
}

impl FileFault {
    fn new(err: &FileError, text: String) -> Self {
        match err {
            FileError::Io(_) => Self::Unreadable(text),
            FileError::NotRegular(_) | FileError::TooLarge(_) | FileError::NotText => {
                Self::Invalid(text)
            }
        }
    }
}

/// A token in a file, which may be replaced while it is in use.
pub(super) struct TokenFile {
    pub(super) path: PathBuf,
    pub(super) token: String,
}

/// Reads `path`, and the files of its current context. `pair` replaces the credentials of its user.
pub(super) fn kubeconfig(path: &Path, pair: Option<&Path>) -> Result<Inlined, FileFault> {
    let text = file::text(path).map_err(|err| FileFault::new(&err, err.to_string()))?;
    // Some editors start every file with a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    if text.trim().is_empty() {
        return Err(FileFault::Unreadable("it is empty".to_owned()));
    }
    let mut kubeconfig = parse(text)?;
    let dir = path.parent().unwrap_or(Path::new(""));
    let context = current_context(&kubeconfig).cloned();
    let (mut token, mut had_files) = (None, false);
    if let Some(context) = context {
        let mut clusters = kubeconfig.clusters.iter_mut();
        let cluster = clusters.find(|named| named.name == context.cluster);
        if let Some(cluster) = cluster.and_then(|named| named.cluster.as_mut()) {
            had_files |= inline_authority(cluster, dir)?;
        }
        let mut users = kubeconfig.auth_infos.iter_mut();
        let user = users.find(|named| Some(&named.name) == context.user.as_ref());
        if let Some(user) = user.and_then(|named| named.auth_info.as_mut()) {
            if let Some(pair) = pair {
                let pair = pair.to_str().map(str::to_owned);
                *user = AuthInfo {
                    client_certificate: pair.clone(),
                    client_key: pair,
                    ..AuthInfo::default()
                };
            }
            had_files |= inline_user(user, dir, &mut token)?;
        }
    }
    Ok(Inlined {
        kubeconfig,
        token,
        had_files,
    })
}

/// The same for the service account in `dir`, of the server at `host` and `port`.
pub(super) fn service_account(dir: &Path, host: &str, port: &str) -> Result<Inlined, FileFault> {
    let port: u16 = port
        .parse()
        .map_err(|_| FileFault::Invalid(format!("the port of the API server is {port:?}")))?;
    let host = match host.parse() {
        Ok(std::net::IpAddr::V6(ip)) => format!("[{ip}]"),
        Ok(std::net::IpAddr::V4(_)) | Err(_) => host.to_owned(),
    };
    let authority = data("the certificate authority", &dir.join("ca.crt"))?;
    let token = read_token(&dir.join("token"))?;
    let kubeconfig = json!({
        "current-context": "pod",
        "contexts": [{"name": "pod", "context": {"cluster": "here", "user": "account"}}],
        "clusters": [{"name": "here", "cluster": {
            "server": format!("https://{host}:{port}"),
            "certificate-authority-data": authority,
        }}],
        "users": [{"name": "account", "user": {}}],
    });
    Ok(Inlined {
        kubeconfig: serde_json::from_value(kubeconfig).map_err(invalid)?,
        token: Some(token),
        had_files: true,
    })
}

/// Parses a kubeconfig. Errors contain no excerpt of `text`, because it may be part of a secret.
pub(super) fn parse(text: &str) -> Result<Kubeconfig, FileFault> {
    Kubeconfig::from_yaml(text).map_err(|err| match err {
        // Another program may be writing it.
        KubeconfigError::Parse(err) => {
            FileFault::Unreadable(format!("it cannot be parsed: {}", err.without_snippet()))
        }
        err => FileFault::Invalid(err.to_string()),
    })
}

/// The context that applies, if the kubeconfig has it.
pub(super) fn current_context(kubeconfig: &Kubeconfig) -> Option<&Context> {
    let current = kubeconfig.current_context.as_ref()?;
    let mut contexts = kubeconfig.contexts.iter();
    contexts
        .find(|named| named.name == *current)?
        .context
        .as_ref()
}

pub(super) fn read_token(path: &Path) -> Result<TokenFile, FileFault> {
    let shown = path.display();
    let text =
        file::text(path).map_err(|err| FileFault::new(&err, format!("token {shown}: {err}")))?;
    let token = text.trim();
    if token.is_empty() {
        return Err(FileFault::Unreadable(format!("token {shown}: it is empty")));
    }
    Ok(TokenFile {
        path: path.to_owned(),
        token: token.to_owned(),
    })
}

/// Whether there was a file.
fn inline_authority(cluster: &mut Cluster, dir: &Path) -> Result<bool, FileFault> {
    if let Some(path) = cluster.certificate_authority.take()
        && cluster.certificate_authority_data.is_none()
    {
        let data = data("certificate-authority", &dir.join(path))?;
        cluster.certificate_authority_data = data.as_str().map(str::to_owned);
        return Ok(true);
    }
    Ok(false)
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the signature of a function for `map_err`"
)]
fn invalid(err: serde_json::Error) -> FileFault {
    FileFault::Invalid(err.to_string())
}

/// Whether there was a file. Sets the token if it is in one.
fn inline_user(
    user: &mut AuthInfo,
    dir: &Path,
    token: &mut Option<TokenFile>,
) -> Result<bool, FileFault> {
    let mut had_files = false;
    let Value::Object(mut keys) = serde_json::to_value(&*user).map_err(invalid)? else {
        return Ok(had_files);
    };
    for (path_key, data_key) in OF_USER {
        if let Some(path) = take(&mut keys, path_key)
            && keys.get(data_key).is_none_or(Value::is_null)
        {
            keys.insert(data_key.to_owned(), data(path_key, &dir.join(path))?);
            had_files = true;
        }
    }
    let token_file = take(&mut keys, "tokenFile");
    *user = serde_json::from_value(Value::Object(keys)).map_err(invalid)?;
    if let Some(exec) = &mut user.exec
        && let Some(command) = &mut exec.command
        && command.contains('/')
    {
        *command = dir.join(&*command).display().to_string();
    }
    // In kube's order of precedence.
    let has_password = user.username.is_some() && user.password.is_some();
    let applies = !has_password && user.token.is_none() && user.exec.is_none();
    if let Some(path) = token_file.filter(|_| applies) {
        *token = Some(read_token(&dir.join(path))?);
        had_files = true;
    }
    Ok(had_files)
}

fn take(keys: &mut Map<String, Value>, key: &str) -> Option<String> {
    keys.remove(key)?.as_str().map(str::to_owned)
}

/// The content of a file, in base 64.
fn data(key: &str, path: &Path) -> Result<Value, FileFault> {
    let bytes = file::read(path)
        .map_err(|err| FileFault::new(&err, format!("{key} {}: {err}", path.display())))?;
    Ok(json!(ByteString(bytes)))
}
