//! Runs the test API server as a program, for `kubectl` and for experiments.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context;
use clap::Parser;
use nodepulse_tests::api_server::ApiServer;
use nodepulse_tests::cri_server::CriServer;
use nodepulse_tests::made_up;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

/// Serves a made-up cluster until SIGINT or SIGTERM.
#[derive(Debug, Parser)]
struct Args {
    /// Address to listen on; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Folder for the kubeconfigs: `kubeconfig`, and `kubeconfig-<node>` with `--node`.
    #[arg(long)]
    dir: PathBuf,
    /// Writes credentials for this node as well. May be given several times.
    #[arg(long)]
    node: Vec<String>,
    /// Made-up pods on each of these nodes.
    #[arg(long, default_value_t = 0)]
    pods: u32,
    /// These nodes are there from the start, as if a kubelet had registered them.
    #[arg(long)]
    registered: bool,
    /// Writes each request to stderr.
    #[arg(long)]
    log_requests: bool,
    /// Serves a made-up container runtime at this path.
    #[arg(long)]
    cri_socket: Option<PathBuf>,
    /// Images of the container runtime.
    #[arg(long, default_value_t = 0)]
    cri_images: u64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let listen = args.listen;
    let server = ApiServer::listen(listen)
        .await
        .with_context(|| format!("listen on {listen}"))?;
    if args.log_requests {
        server.log_requests(|request| eprintln!("{request}"));
    }
    let kubeconfig = server.admin_kubeconfig(&args.dir);
    for name in &args.node {
        if args.registered {
            server.put_object(made_up::node(name));
        }
        for number in 0..args.pods {
            server.put_object(made_up::pod(name, number));
        }
    }
    if let Some(socket) = &args.cri_socket {
        let runtime = CriServer::ready();
        runtime.images((0..args.cri_images).map(made_up::image).collect());
        // It ends with the process.
        drop(
            runtime
                .listen_at(socket)
                .with_context(|| format!("listen at {}", socket.display()))?,
        );
    }
    let nodes: serde_json::Map<_, _> = args
        .node
        .iter()
        .map(|name| (name.clone(), json!(server.node_kubeconfig(&args.dir, name))))
        .collect();
    println!(
        "{}",
        json!({"url": server.url(), "kubeconfig": kubeconfig, "nodes": nodes})
    );

    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    server.stop().await;
    Ok(())
}
