//! The annotations of an Event about OOM kills: see [`kill_annotation`](crate::kill_annotation).

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Finding, KillDetails, Kills};
use crate::kill_annotation::{MEMORY_USERS, MemoryUser, OOM_KILL, OomKill};
use crate::reading::oom::{Consequence, LimitOwner};
use crate::units::Bytes;

/// `metadata.annotations`.
pub type Annotations = BTreeMap<String, String>;

/// Of kills with one cause. `container`: in which, if in one.
pub(super) fn of_kills(kills: &Kills, container: Option<&str>) -> Annotations {
    let Some(first) = kills.first() else {
        return Annotations::new();
    };
    let limiting = first.scope.as_ref().memcg();
    let usage = limiting.filter(|_| !first.is_global());
    let usage = usage.and_then(|limiting| limiting.usage);
    let kill = OomKill {
        container: container.map(str::to_owned),
        consequence: kills
            .consequence()
            .map(|of| Consequence::as_str(of).to_owned()),
        limit: limit(first).map(str::to_owned),
        limit_bytes: usage.map(|(_, limit)| limit.get()),
        used_bytes: usage.map(|(used, _)| used.get()),
        processes: kills.count(),
        victim: first.comm.clone(),
        victim_bytes: first.resident_sum().map(Bytes::get),
    };
    annotation(OOM_KILL, &kill)
}

/// Of details that were read after the kill.
pub(super) fn of_details(details: &KillDetails) -> Annotations {
    let user = |name: &str, bytes: Bytes| MemoryUser {
        name: name.to_owned(),
        bytes: bytes.get(),
    };
    let processes = details.processes.largest.iter();
    let processes = processes.map(|process| user(&process.comm, process.resident));
    let owners = details.memory.owners.iter();
    let owners = owners.map(|of| user(&of.owner.short_name(), of.used));
    let users: Vec<MemoryUser> = processes.chain(owners).collect();
    if users.is_empty() {
        return Annotations::new();
    }
    annotation(MEMORY_USERS, &users)
}

fn annotation(name: &str, value: &impl Serialize) -> Annotations {
    let text = serde_json::to_string(value).ok();
    text.into_iter()
        .map(|text| (name.to_owned(), text))
        .collect()
}

fn limit(kill: &Finding) -> Option<&'static str> {
    if kill.is_global() {
        return Some("node");
    }
    let limiting = kill.scope.as_ref().memcg()?;
    Some(match limiting.owner {
        LimitOwner::Container => "container",
        LimitOwner::Pod => "pod",
        LimitOwner::PodsCgroup => "pods",
        LimitOwner::Other => "cgroup",
    })
}
