use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;

use nodepulse_linux::cri::{Client, Connector, CriError};

use nodepulse_tests::cri_server::CriServer;
use tempfile::tempdir;

/// The runtime's name, or the error in one line.
async fn version_at(socket: &Path) -> Result<String, String> {
    let mut client = Client::new(vec![socket.to_owned()], Connector::unix());
    let version = client.version().await;
    let version = version.map(|(_, version)| version.name.clone());
    version.map_err(|err: CriError| err.to_string())
}

#[tokio::test]
async fn a_path_at_which_no_runtime_listens_is_an_error_at_once() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("file"), "text").unwrap();
    fs::create_dir(at("directory")).unwrap();
    symlink(at("nowhere"), at("dangling")).unwrap();
    symlink(at("loop"), at("loop")).unwrap();
    // Its listener has ended.
    drop(UnixListener::bind(at("left-behind")).unwrap());
    let absent = "there is no container runtime at";
    let rows = [
        ("missing", absent),
        ("file", absent),
        ("directory", absent),
        ("dangling", absent),
        ("left-behind", absent),
        ("loop", "cannot connect to the container runtime at"),
        ("file/below", "cannot connect to the container runtime at"),
    ];
    for (name, expected) in rows {
        let socket = at(name);
        let err = version_at(&socket).await.unwrap_err();
        assert!(err.starts_with(expected), "{name}: {err}");
        assert!(err.contains(&socket.display().to_string()), "{name}: {err}");
        assert!(err.contains("runtime.endpoint"), "{name}: {err}");
    }
}

/// A listener that accepts nothing. Simulated time passes while the client waits.
#[tokio::test(start_paused = true)]
async fn a_listener_that_never_answers_is_not_waited_for() {
    let dir = tempdir().unwrap();
    let socket = dir.path().join("socket");
    let _listener = UnixListener::bind(&socket).unwrap();
    let err = version_at(&socket).await.unwrap_err();
    assert!(err.starts_with("no answer to Version within 5s"), "{err}");
}

#[tokio::test]
async fn a_link_to_a_socket_is_followed() {
    let dir = tempdir().unwrap();
    let (socket, link) = (dir.path().join("socket"), dir.path().join("link"));
    let listening = CriServer::ready().listen_at(&socket).unwrap();
    symlink(&socket, &link).unwrap();
    assert_eq!(version_at(&link).await.as_deref(), Ok("containerd"));
    listening.abort();
}
