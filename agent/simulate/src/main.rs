//! `nodepulse-simulate`: any number of simulated nodes in one process against a real API server, by
//! the code of node mode; with one node, the smallest possible kubelet.
//!
//! ```text
//! watches ──► Fleet ──due──► perform (setters, diff, Lease, registration) ──► API server
//!               ▲                                    │
//!               └──────────── outcome ◄──────────────┘
//! ```
//!
//! Of a node only numbers are kept. What is sent is made when it is due, and dropped. The daemon
//! links none of it.

#![forbid(unsafe_code)]

mod address;
mod arguments;
mod cleanup;
mod fleet;
mod kill;
mod node;
mod perform;
mod pod;
mod pods;
mod tally;
mod watch;

use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use clap::Parser as _;
use nodepulse_core::node_status::release::Release;
use nodepulse_io::clock::Clock;
use nodepulse_kube::credentials::CredentialSource;
use nodepulse_kube::node_list::NodeList;
use nodepulse_kube::{Client, access};
use tokio::signal::ctrl_c;
use tokio::signal::unix::{SignalKind, signal};

use arguments::Arguments;
use fleet::Fleet;
use node::{SIMULATED, Template};
use perform::Shared;

/// Timeout for each request: a quarter of the lease duration, as in the agent.
const DEADLINE: Duration = Duration::from_secs(10);

/// Attempts to remove all nodes.
const PASSES: u32 = 10;

/// Nodes that need no `--yes` in a cluster with real ones.
const FEW: u32 = 10;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(conflict) = arguments.conflict() {
        return fail(&conflict, 2);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let done = match runtime {
        Ok(runtime) => runtime.block_on(run(&arguments)),
        Err(err) => Err(format!("cannot start: {err}")),
    };
    done.map_or_else(|why| fail(&why, 1), |()| ExitCode::SUCCESS)
}

#[expect(clippy::print_stderr, reason = "the reason of the exit code")]
fn fail(why: &str, code: u8) -> ExitCode {
    eprintln!("nodepulse-simulate: {why}");
    ExitCode::from(code)
}

async fn run(arguments: &Arguments) -> Result<(), String> {
    let first = connect(arguments).await?;
    if arguments.cleanup {
        return remove(&first, |_| true).await;
    }
    let release = access::version(&first).await.map_err(|err| err.chain())?;
    let release = release.as_deref().and_then(Release::parse);
    let count = arguments.nodes.unwrap_or_default();
    let selector = format!("{SIMULATED}!=true");
    let real = NodeList::new(&first, Some(&selector)).next().await;
    let has_real = real
        .map_err(|err| err.chain())?
        .is_some_and(|page| !page.is_empty());
    let is_much = FEW < count || 10 * FEW < count.saturating_mul(arguments.pods_per_node);
    if is_much && has_real && !arguments.yes {
        return Err(format!(
            "this cluster has real nodes, which share its API server and its ranges of addresses with \
             more than {FEW} simulated ones, or {} pods; use --yes if that is intended",
            10 * FEW
        ));
    }
    let shared = Rc::new(Shared {
        clients: [
            first,
            connect(arguments).await?,
            connect(arguments).await?,
            connect(arguments).await?,
        ],
        clock: Clock::kernel(),
        template: Template::new(arguments, release),
        impersonate: arguments.impersonate,
        namespace: arguments.namespace.clone(),
    });
    let is_included = |name: &str| {
        let number = shared.template.number(name);
        number.is_some_and(|number| number < count)
    };
    if arguments.pods_per_node > 0 {
        let old = cleanup::remove_pods(shared.user(), &is_included).await;
        old.map_err(|err| err.chain())?;
    }
    let result = simulate(arguments, &shared).await;
    let removed = tokio::select! {
        removed = remove(shared.user(), is_included) => removed,
        () = stopped() => Err("interrupted; remove the nodes with --cleanup".to_owned()),
    };
    result.and(removed)
}

/// Runs until a signal or the time that was requested.
#[expect(clippy::print_stdout, reason = "the summary is the result")]
async fn simulate(arguments: &Arguments, shared: &Rc<Shared>) -> Result<(), String> {
    let user = || shared.user().clone();
    let watches = (watch::nodes(user()), watch::pods(user()));
    let end = async {
        tokio::select! {
            () = stopped() => {}
            () = tokio::time::sleep(arguments.duration.unwrap_or(Duration::MAX)) => {}
        }
    };
    let mut fleet = Fleet::new(arguments, Rc::clone(shared));
    let result = fleet.run(watches, end).await;
    print!("{}", fleet.summary());
    result
}

/// Returns at the first SIGINT or SIGTERM.
async fn stopped() {
    let Ok(mut terminated) = signal(SignalKind::terminate()) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = ctrl_c() => {}
        _ = terminated.recv() => {}
    }
}

/// Removes the nodes, until none is found: a request that was under way may still create one.
#[expect(clippy::print_stderr, reason = "the result of the cleanup")]
async fn remove(client: &Client, is_included: impl Fn(&str) -> bool) -> Result<(), String> {
    let mut removed = (0, 0);
    for _ in 0..PASSES {
        match cleanup::remove(client, &is_included).await {
            Ok((nodes, pods)) => {
                removed = (removed.0 + nodes, removed.1 + pods);
                if nodes == 0 {
                    eprintln!("removed {} nodes and {} pods", removed.0, removed.1);
                    return Ok(());
                }
            }
            Err(err) => {
                eprintln!("cannot remove nodes: {}", err.chain());
                client.pause(Duration::from_secs(1)).await;
            }
        }
    }
    Err("not all nodes are removed; use --cleanup, while no other simulation runs".to_owned())
}

async fn connect(arguments: &Arguments) -> Result<Client, String> {
    // As kubectl does.
    let named = || std::env::var_os("KUBECONFIG").map(PathBuf::from);
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".kube/config"));
    let default = || named().or_else(home).filter(|path| path.exists());
    let kubeconfig = arguments.kubeconfig.clone().or_else(default);
    let source = match &kubeconfig {
        Some(path) => CredentialSource::Kubeconfig(path),
        None => CredentialSource::InCluster,
    };
    let client = Client::from_credentials(source, DEADLINE).await;
    client.map_err(|err| err.chain())
}
