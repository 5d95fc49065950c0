//! The kubeconfig of a node whose certificate the agent requests: written from the bootstrap
//! kubeconfig, with the server of that and the pair of files in `certDir`.

#![forbid(unsafe_code)]

use std::fs;
use std::io;
use std::path::Path;

use kube::config::{Kubeconfig, NamedAuthInfo};
use nodepulse_io::file::{self, FileError};
use serde_json::json;

use super::files::{self, FileFault};
use super::one_line;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KubeconfigState {
    Missing,
    /// It was read completely, and is no kubeconfig: why.
    Invalid(String),
    Requested,
    Other,
}

/// Reads the kubeconfig at `path`. `pair` is the path of the requested certificate with its key.
/// `Err` is a message of one line about a file that may contain credentials, but whose user is
/// unknown.
pub fn state(path: &Path, pair: &Path) -> Result<KubeconfigState, NotWritten> {
    let refused = |why: &str| {
        format!(
            "kubeconfig {}: {why}; it may contain credentials, and is not replaced: correct it, or \
             remove it so that nodepulse writes a new one",
            path.display()
        )
    };
    let text = match file::text(path) {
        Ok(text) => text,
        Err(FileError::Io(err)) if err.kind() == io::ErrorKind::NotFound => {
            return Ok(KubeconfigState::Missing);
        }
        Err(err @ FileError::NotText) => return Ok(KubeconfigState::Invalid(err.to_string())),
        Err(err) => {
            let why = refused(&format!("it cannot be read ({err})"));
            // What a person has to change are the kind of the file and its permissions.
            return Err(match err {
                FileError::Io(err) if !is_lasting(err.kind()) => NotWritten::NotYet(why),
                _ => NotWritten::Invalid(why),
            });
        }
    };
    if text.trim().is_empty() {
        return Ok(KubeconfigState::Invalid("it is empty".to_owned()));
    }
    let kubeconfig = match files::parse(&text) {
        Ok(kubeconfig) => kubeconfig,
        Err(err) => return Ok(KubeconfigState::Invalid(one_line(&err.to_string()))),
    };
    let Some(user) = user(&kubeconfig) else {
        return Err(NotWritten::Invalid(refused(
            "its current context has no user",
        )));
    };
    let certificate = user.auth_info.as_ref();
    let certificate = certificate.and_then(|user| user.client_certificate.as_deref());
    let dir = path.parent().unwrap_or(Path::new(""));
    let is_requested = certificate.is_some_and(|certificate| dir.join(certificate) == pair);
    Ok(if is_requested {
        KubeconfigState::Requested
    } else {
        KubeconfigState::Other
    })
}

/// Whether a person has to change something.
fn is_lasting(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{IsADirectory, NotADirectory, PermissionDenied};
    matches!(kind, IsADirectory | NotADirectory | PermissionDenied)
}

fn user(kubeconfig: &Kubeconfig) -> Option<&NamedAuthInfo> {
    let user = files::current_context(kubeconfig)?.user.as_ref()?;
    let mut users = kubeconfig.auth_infos.iter();
    users.find(|named| named.name == *user)
}

/// Why the kubeconfig was not written, in one line.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotWritten {
    /// A person has to change something.
    #[error("{0}")]
    Invalid(String),
    /// The kernel refused it, or the bootstrap kubeconfig does not exist yet.
    #[error("{0}")]
    NotYet(String),
}

pub fn write(path: &Path, bootstrap: &Path, pair: &Path) -> Result<(), NotWritten> {
    let shown = bootstrap.display();
    let text = |why: &str| format!("bootstrapKubeconfig: {shown}: {}", one_line(why));
    let invalid = |why: &str| NotWritten::Invalid(text(why));
    let read = files::kubeconfig(bootstrap, None).map_err(|fault| match fault {
        FileFault::Invalid(why) => invalid(&why),
        FileFault::Unreadable(why) => NotWritten::NotYet(text(&why)),
    })?;
    let kubeconfig = read.kubeconfig;
    let context = files::current_context(&kubeconfig);
    let mut clusters = kubeconfig.clusters.iter();
    let cluster =
        context.and_then(|context| clusters.find(|cluster| cluster.name == context.cluster));
    let Some(cluster) = cluster.and_then(|cluster| cluster.cluster.as_ref()) else {
        return Err(invalid("its current context has no cluster"));
    };
    // JSON is YAML.
    let text = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "node",
        "contexts": [{"name": "node", "context": {"cluster": "cluster", "user": "node"}}],
        "clusters": [{"name": "cluster", "cluster": cluster}],
        "users": [{"name": "node", "user": {"client-certificate": pair, "client-key": pair}}],
    });
    replace(path, &format!("{text:#}\n")).map_err(|err| {
        NotWritten::NotYet(format!(
            "cannot write kubeconfig {} ({err}); set a path in a directory that nodepulse can write; \
             example: kubeconfig: /var/lib/nodepulse/kubeconfig",
            path.display()
        ))
    })
}

/// A reader sees the old file or the whole new one.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = Path::new(&new);
    file::write_private(new, text.as_bytes())?.sync_all()?;
    fs::rename(new, path)
}

#[cfg(test)]
mod tests {
    use nodepulse_linux::host::scratch::Scratch;

    use super::*;

    const BOOTSTRAP: &str = "apiVersion: v1
kind: Config
current-context: b
contexts: [{name: b, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: \"https://10.0.0.1:6443\", certificate-authority: ca.crt}}]
users: [{name: u, user: {token: abcdef.0123456789abcdef}}]
";

    #[test]
    fn the_written_kubeconfig_has_the_server_and_the_pair_but_not_the_token() {
        let dir = Scratch::new();
        dir.write("bootstrap", BOOTSTRAP);
        dir.write("ca.crt", "an authority");
        let at = |name: &str| dir.path().join(name);
        let (path, pair) = (at("kubeconfig"), at("pki/kubelet-client-current.pem"));
        assert_eq!(state(&path, &pair), Ok(KubeconfigState::Missing));
        write(&path, &at("bootstrap"), &pair).unwrap();
        assert_eq!(state(&path, &pair), Ok(KubeconfigState::Requested));
        assert_eq!(state(&path, &at("another.pem")), Ok(KubeconfigState::Other));
        assert_eq!(state(&at("bootstrap"), &pair), Ok(KubeconfigState::Other));
        let text = file::text(&path).unwrap();
        assert!(!text.contains("abcdef"), "{text}");
        // In base 64, because the written file may be in another directory.
        assert!(text.contains("YW4gYXV0aG9yaXR5"), "{text}");
        let mode = std::os::unix::fs::PermissionsExt::mode;
        assert_eq!(
            mode(&fs::metadata(&path).unwrap().permissions()) & 0o777,
            0o600
        );

        let rows: [(&[u8], &str); 4] = [
            (b"\n", "empty"),
            (b"a: [", "one line"),
            (b"contexts: 7", "sequence"),
            (b"\xff", "not UTF-8"),
        ];
        for (text, why) in rows {
            dir.write("kubeconfig", text);
            let state = state(&path, &pair);
            let Ok(KubeconfigState::Invalid(message)) = &state else {
                panic!("{why}: {state:?}");
            };
            assert!(!message.contains('\n'), "{why}: {message}");
        }
        // The invalid one is replaced.
        write(&path, &at("bootstrap"), &pair).unwrap();
        assert_eq!(state(&path, &pair), Ok(KubeconfigState::Requested));
    }

    #[test]
    fn a_file_that_may_contain_credentials_is_refused_by_name() {
        let dir = Scratch::new();
        let at = |name: &str| dir.path().join(name);
        dir.mkdir("directory");
        dir.write("large", vec![b'#'; (1 << 20) + 1]);
        dir.write("contexts", BOOTSTRAP.replace("current-context: b", ""));
        dir.write("file", "");
        let rows = [
            ("directory", "it is a directory"),
            ("large", "more than 1048576 bytes"),
            ("contexts", "its current context has no user"),
            ("file/kubeconfig", "Not a directory"),
        ];
        for (name, expected) in rows {
            let Err(NotWritten::Invalid(err)) = state(&at(name), &at("pair")) else {
                panic!("{name}");
            };
            for part in [at(name).to_str().unwrap(), expected, "remove it"] {
                assert!(err.contains(part), "{name}: {err}");
            }
            assert!(!err.contains('\n'), "{err}");
        }
    }

    #[test]
    fn a_bootstrap_kubeconfig_that_cannot_be_used_is_named() {
        let dir = Scratch::new();
        dir.write("ca.crt", "an authority");
        let at = |name: &str| dir.path().join(name);
        //  name, the kubeconfig, part of the error, whether it can pass
        #[rustfmt::skip]
        let rows = [
            ("context", BOOTSTRAP.replace("current-context: b", "current-context: x"), "no cluster", false),
            ("authority", BOOTSTRAP.replace("ca.crt", "none.crt"), "No such file", true),
            ("yaml", "a: [".to_owned(), "bootstrapKubeconfig", true),
        ];
        for (name, text, expected, can_pass) in rows {
            dir.write(name, &text);
            let err = write(&at("kubeconfig"), &at(name), &at("pair")).unwrap_err();
            let passes = matches!(err, NotWritten::NotYet(_));
            assert_eq!(passes, can_pass, "{err:?}");
            let err = err.to_string();
            assert!(err.contains(expected) && err.contains(name), "{err}");
            assert!(!err.contains('\n'), "{err}");
        }
        dir.write("good", BOOTSTRAP);
        let err = write(&at("none/kubeconfig"), &at("good"), &at("pair")).unwrap_err();
        let err = err.to_string();
        assert!(
            err.contains("cannot write kubeconfig") && err.contains("example"),
            "{err}"
        );
    }
}
