//! The annotations of an Event about OOM kills: see [`kill_annotation`](crate::kill_annotation).

use serde::{Serialize, Serializer};

use super::{ContainerLabel, Finding};
use crate::incident::{Incident, Occurrence};
use crate::kill_annotation::{MEMORY_USERS, MemoryUser, OOM_KILL, OomKill};
use crate::reading::oom::{Consequence, LimitOwner};
use crate::units::Bytes;

/// Annotation of an Event about the end of a problem: the id of the incident with which it began.
pub(super) const ENDED_INCIDENT: &str = concat!(domain!(), "/ended-incident");

/// `metadata.annotations`, in the order of their names. There are at most two, for which a tree
/// would allocate 544 bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Annotations(Vec<(Box<str>, Box<str>)>);

impl Annotations {
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    pub fn one(name: &str, value: &str) -> Self {
        Self(vec![(name.into(), value.into())])
    }

    /// `container`: see [`OomKill::container`].
    pub(super) fn of_kill(
        kill: Option<OomKill>,
        users: &[MemoryUser],
        container: Option<&str>,
    ) -> Self {
        let mut all = Self::new();
        if let Some(mut kill) = kill {
            kill.container = container.map(str::to_owned);
            all.add_all(annotation(OOM_KILL, &kill));
        }
        if !users.is_empty() {
            all.add_all(annotation(MEMORY_USERS, &users));
        }
        all
    }

    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| **known == *name)?;
        Some(&found.1)
    }

    /// Replaces annotations of the same name.
    pub fn add_all(&mut self, other: Self) {
        for (name, value) in other.0 {
            let place = self.0.partition_point(|(known, _)| *known < name);
            match self.0.get_mut(place) {
                Some(known) if known.0 == name => known.1 = value,
                _ => {
                    self.0.reserve_exact(1);
                    self.0.insert(place, (name, value));
                }
            }
        }
    }
}

impl Serialize for Annotations {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl Incident {
    /// Returns the name of the container in which it happened, or the beginning of its id.
    pub fn container(&self) -> Option<&str> {
        let container = self.object.container.as_ref();
        container.map(|container| container.called().0)
    }

    /// Returns the kills with one cause as programs read them; `None` if it is no such incident.
    pub fn oom_kill(&self) -> Option<OomKill> {
        let Occurrence::Kills(kills) = &self.occurred.occurrence else {
            return None;
        };
        let first = kills.first()?;
        let limiting = first.scope.as_ref().memcg();
        let usage = limiting.filter(|_| !first.is_global());
        let usage = usage.and_then(|limiting| limiting.usage);
        Some(OomKill {
            container: self.container().map(str::to_owned),
            consequence: kills
                .consequence()
                .map(|of| Consequence::as_str(of).to_owned()),
            limit: limit(first).map(str::to_owned),
            limit_bytes: usage.map(|(_, limit)| limit.get()),
            used_bytes: usage.map(|(used, _)| used.get()),
            processes: kills.count(),
            victim: first.comm.clone(),
            victim_bytes: first.resident_sum().map(Bytes::get),
        })
    }

    /// Returns what used most memory, if that was read after a kill.
    pub fn memory_users(&self) -> Vec<MemoryUser> {
        let Some(details) = self.details() else {
            return Vec::new();
        };
        let user = |name: &str, bytes: Bytes| MemoryUser {
            name: name.to_owned(),
            bytes: bytes.get(),
        };
        let processes = details.processes.largest.iter();
        let processes = processes.map(|process| user(&process.comm, process.resident));
        let owners = details.memory.owners.iter();
        let owners = owners.map(|of| user(&of.owner.short_name(), of.used));
        processes.chain(owners).collect()
    }

    /// `container` is the name of the container, in an Event on its Pod.
    pub(super) fn annotations(&self, container: Option<&ContainerLabel>) -> Annotations {
        let container = container.map(|container| container.called().0);
        Annotations::of_kill(self.oom_kill(), &self.memory_users(), container)
    }
}

fn annotation(name: &str, value: &impl Serialize) -> Annotations {
    serde_json::to_string(value)
        .map_or_else(|_| Annotations::new(), |text| Annotations::one(name, &text))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_are_the_same_in_whatever_order_they_are_added() {
        let all = |names: [&str; 3]| {
            let mut all = Annotations::new();
            for name in names {
                all.add_all(Annotations::one(name, name));
            }
            all
        };
        let sorted = all(["a", "b", "b"]);
        assert_eq!(all(["b", "a", "a"]), sorted);
        let text = serde_json::to_string(&sorted).unwrap();
        assert_eq!(text, r#"{"a":"a","b":"b"}"#);
    }
}
