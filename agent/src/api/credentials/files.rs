//! The files with credentials: read here, within a limit, and passed to kube as data.
//!
//! kube reads files of any kind and size, and reads a token's file and the certificate authority of
//! a service account again for each request, on the only runtime thread.

#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};

use k8s_openapi::ByteString;
use kube::config::{AuthInfo, Cluster, Context, Kubeconfig};
use serde_json::{Map, Value, json};

use crate::file;

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
}

/// A token in a file, which may be replaced while it is in use.
pub(super) struct TokenFile {
    pub(super) path: PathBuf,
    pub(super) token: String,
}

/// Reads `path`, and the files of its current context.
pub(super) fn kubeconfig(path: &Path) -> Result<Inlined, String> {
    let text = file::text(path).map_err(|err| err.to_string())?;
    // Some editors start every file with a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let mut kubeconfig = Kubeconfig::from_yaml(text).map_err(|err| err.to_string())?;
    let dir = path.parent().unwrap_or(Path::new(""));
    let context = current_context(&kubeconfig).cloned();
    let mut token = None;
    if let Some(context) = context {
        let mut clusters = kubeconfig.clusters.iter_mut();
        let cluster = clusters.find(|named| named.name == context.cluster);
        if let Some(cluster) = cluster.and_then(|named| named.cluster.as_mut()) {
            inline_authority(cluster, dir)?;
        }
        let mut users = kubeconfig.auth_infos.iter_mut();
        let user = users.find(|named| Some(&named.name) == context.user.as_ref());
        if let Some(user) = user.and_then(|named| named.auth_info.as_mut()) {
            token = inline_user(user, dir)?;
        }
    }
    Ok(Inlined { kubeconfig, token })
}

/// The same for the service account in `dir`, of the server at `host` and `port`.
pub(super) fn service_account(dir: &Path, host: &str, port: &str) -> Result<Inlined, String> {
    let port: u16 = port
        .parse()
        .map_err(|_| format!("the port of the API server is {port:?}"))?;
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
        kubeconfig: serde_json::from_value(kubeconfig).map_err(|err| err.to_string())?,
        token: Some(token),
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

/// The token in a file.
pub(super) fn read_token(path: &Path) -> Result<TokenFile, String> {
    let wrong = |why: &dyn std::fmt::Display| format!("token {}: {why}", path.display());
    let text = file::text(path).map_err(|err| wrong(&err))?;
    let token = text.trim();
    if token.is_empty() {
        return Err(wrong(&"it is empty"));
    }
    Ok(TokenFile {
        path: path.to_owned(),
        token: token.to_owned(),
    })
}

fn inline_authority(cluster: &mut Cluster, dir: &Path) -> Result<(), String> {
    if let Some(path) = cluster.certificate_authority.take()
        && cluster.certificate_authority_data.is_none()
    {
        let data = data("certificate-authority", &dir.join(path))?;
        cluster.certificate_authority_data = data.as_str().map(str::to_owned);
    }
    Ok(())
}

fn inline_user(user: &mut AuthInfo, dir: &Path) -> Result<Option<TokenFile>, String> {
    let read = |err: serde_json::Error| err.to_string();
    let Value::Object(mut keys) = serde_json::to_value(&*user).map_err(read)? else {
        return Ok(None);
    };
    for (path_key, data_key) in OF_USER {
        if let Some(path) = take(&mut keys, path_key)
            && keys.get(data_key).is_none_or(Value::is_null)
        {
            keys.insert(data_key.to_owned(), data(path_key, &dir.join(path))?);
        }
    }
    let token_file = take(&mut keys, "tokenFile");
    *user = serde_json::from_value(Value::Object(keys)).map_err(read)?;
    if let Some(exec) = &mut user.exec
        && let Some(command) = &mut exec.command
        && command.contains('/')
    {
        *command = dir.join(&*command).display().to_string();
    }
    // In kube's order of precedence.
    let has_password = user.username.is_some() && user.password.is_some();
    match token_file {
        Some(path) if !has_password && user.token.is_none() && user.exec.is_none() => {
            read_token(&dir.join(path)).map(Some)
        }
        Some(_) | None => Ok(None),
    }
}

fn take(keys: &mut Map<String, Value>, key: &str) -> Option<String> {
    keys.remove(key)?.as_str().map(str::to_owned)
}

/// The content of a file, in base 64.
fn data(key: &str, path: &Path) -> Result<Value, String> {
    let bytes = file::read(path).map_err(|err| format!("{key} {}: {err}", path.display()))?;
    Ok(json!(ByteString(bytes)))
}
