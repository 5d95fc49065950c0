//! Removes simulated Nodes, their Leases, and the pods that were created for them.

use futures_util::{StreamExt as _, stream};
use nodepulse_kube::convert::{entries, text};
use nodepulse_kube::node_list::NodeList;
use nodepulse_kube::{ApiError, Client, Endpoint, Refusal};

use crate::node::SIMULATED;
use crate::watch::is_simulated;

/// The label of the pods of `--pods-per-node`.
pub const LOAD: &str = "nodepulse.dev/simulated-load";

/// Requests at once.
const AT_ONCE: usize = 64;
/// Pods per page.
const PAGE: u32 = 500;

/// Removes the nodes whose names `is_included` accepts, after their pods. Returns how many nodes
/// and pods there were.
pub async fn remove(
    client: &Client,
    is_included: &impl Fn(&str) -> bool,
) -> Result<(usize, usize), ApiError> {
    let pods = remove_pods(client, is_included).await;
    let selector = format!("{SIMULATED}=true");
    let mut nodes = NodeList::new(client, Some(&selector));
    let mut found = Vec::new();
    while let Some(page) = nodes.next().await? {
        let page = page.into_iter();
        let owned = page.filter(|(name, node)| is_included(name) && is_simulated(node));
        found.extend(owned.map(|(name, node)| (name, text(&node, "/metadata/uid"))));
    }
    let deletions = found.iter().map(|(name, uid)| async move {
        let node = Endpoint::node(name);
        match client.delete(&node, Some(uid), None).await {
            // Another Node may have the name, and its Lease, by now.
            Err(err) => gone(Err(err)),
            Ok(()) => gone(client.delete(&Endpoint::lease(name), None, None).await),
        }
    });
    all(deletions).await?;
    Ok((found.len(), pods?))
}

pub async fn remove_pods(
    client: &Client,
    is_included: &impl Fn(&str) -> bool,
) -> Result<usize, ApiError> {
    let selector = format!("{SIMULATED}=true,{LOAD}=true");
    let mut removed = 0;
    let mut from = None;
    loop {
        let page = Endpoint::pods(PAGE, &selector, from.as_deref());
        let page = match client.get(&page).await {
            Err(err) if err.refusal() == Some(Refusal::Expired) => {
                from = None;
                continue;
            }
            page => page?,
        };
        let owned: Vec<_> = entries(&page, "/items")
            .filter(|pod| is_included(&text(pod, "/spec/nodeName")))
            .map(|pod| {
                let [namespace, name, uid] =
                    ["namespace", "name", "uid"].map(|key| text(pod, &format!("/metadata/{key}")));
                (Endpoint::stored_pod(&namespace, &name), uid)
            })
            .collect();
        removed += owned.len();
        let deletions = owned
            .iter()
            .map(|(pod, uid)| async move { gone(client.delete(pod, Some(uid), Some(0)).await) });
        all(deletions).await?;
        from = Some(text(&page, "/metadata/continue")).filter(|from| !from.is_empty());
        if from.is_none() {
            return Ok(removed);
        }
    }
}

async fn all(
    deletions: impl Iterator<Item = impl Future<Output = Result<(), ApiError>>>,
) -> Result<(), ApiError> {
    let deletions = stream::iter(deletions).buffer_unordered(AT_ONCE);
    // Each is tried.
    let results: Vec<_> = deletions.collect().await;
    results.into_iter().collect()
}

/// What is not there, or another object of that name, needs no deletion.
fn gone(deleted: Result<(), ApiError>) -> Result<(), ApiError> {
    deleted.or_else(|err| match err.refusal() {
        Some(Refusal::NotFound | Refusal::Conflict) => Ok(()),
        _ => Err(err),
    })
}
