//! The proxies that kubectl would use.

use std::fs;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::*;

/// An HTTP proxy that connects to `server`, whatever the client requests; and the requests.
async fn proxy(server: String) -> (String, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (requests, received) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (server, requests) = (server.clone(), requests.clone());
            tokio::spawn(async move {
                let mut client = BufReader::new(stream);
                let mut head = String::new();
                while !head.ends_with("\r\n\r\n") {
                    if client.read_line(&mut head).await.unwrap() == 0 {
                        return;
                    }
                }
                requests.send(head).unwrap();
                let mut server = TcpStream::connect(server).await.unwrap();
                client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
                // Each side may close first.
                drop(copy_bidirectional(&mut client, &mut server).await);
            });
        }
    });
    (address, received)
}

impl Cluster {
    /// The kubeconfig with this line in its cluster, and another address of the server.
    fn kubeconfig_with(&self, name: &str, line: &str, server: &str) -> PathBuf {
        let text = fs::read_to_string(self.kubeconfig()).unwrap();
        let url = self.api.url();
        let text = text.replace(&url, &format!("{server}{line}"));
        assert!(text.contains(line) && text.contains(server), "{text}");
        let path = self.dir.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }
}

#[tokio::test]
async fn the_proxy_of_the_kubeconfig_and_of_the_environment_is_used() {
    let cluster = Cluster::new().await;
    cluster.api.put_object(made_up::node("worker-1"));
    let url = cluster.api.url();
    let address = url.strip_prefix("https://").unwrap();
    let (proxy, mut requests) = proxy(address.to_owned()).await;
    let line = format!("\n    proxy-url: http://jane:p%40ss@{proxy}");
    let named = cluster.kubeconfig_with("named", &line, &url);
    // The kubeconfig's own proxy is used for every server.
    let text = run(&[], &named, &[("NO_PROXY", "*")]).await.good();
    assert!(text.contains("worker-1"), "{text}");
    let head = requests.recv().await.unwrap();
    assert!(head.starts_with(&format!("CONNECT {address} ")), "{head}");
    // jane:p@ss
    assert!(
        head.to_ascii_lowercase()
            .contains("proxy-authorization: basic"),
        "{head}"
    );
    assert!(head.contains("amFuZTpwQHNz"), "{head}");

    // Of other requests of that call, which has ended.
    while requests.try_recv().is_ok() {}

    let name = "\n    tls-server-name: localhost";
    let remote = cluster.kubeconfig_with("remote", name, "https://api.example:6443");
    let variable = ("HTTPS_PROXY", proxy.as_str());
    let text = run(&[], &remote, &[variable]).await.good();
    assert!(text.contains("worker-1"), "{text}");
    let head = requests.recv().await.unwrap();
    assert!(head.starts_with("CONNECT api.example:6443 "), "{head}");
}

#[tokio::test]
async fn servers_of_no_proxy_are_reached_directly_and_unusable_proxies_are_named() {
    let cluster = Cluster::new().await;
    cluster.api.put_object(made_up::node("worker-1"));
    let kubeconfig = cluster.kubeconfig();
    let nowhere = ("HTTPS_PROXY", "http://127.0.0.1:1");
    // As for kubectl, variables do not apply to this machine.
    let text = run(&[], &kubeconfig, &[nowhere]).await.good();
    assert!(text.contains("worker-1"), "{text}");

    let server = "https://api.invalid:6443";
    let remote = cluster.kubeconfig_with("remote", "", server);
    let socks = ("HTTPS_PROXY", "socks5://u:secret@127.0.0.1:1080");
    //  variables, and what the line contains
    let rows: [(&[(&str, &str)], &str); 4] = [
        (
            &[nowhere],
            "cannot reach the API server https://api.invalid:6443 through the proxy \
             http://127.0.0.1:1: ",
        ),
        (
            &[nowhere, ("NO_PROXY", "10.0.0.0/8,.invalid")],
            "cannot reach the API server https://api.invalid:6443: ",
        ),
        (
            &[socks],
            "HTTPS_PROXY is the URL of a proxy of the scheme socks5, and only http is supported: \
             set such a proxy, or add api.invalid to NO_PROXY",
        ),
        (
            &[("HTTPS_PROXY", "not a proxy")],
            "HTTPS_PROXY is not the URL of a proxy, such as http://proxy.example:3128",
        ),
    ];
    for (variables, expected) in rows {
        let line = run(&[], &remote, variables).await.failed(1);
        assert!(line.contains(expected), "{variables:?}: {line}");
        assert!(!line.contains("secret"), "{line}");
    }
}
