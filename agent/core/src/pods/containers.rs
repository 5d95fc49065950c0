//! The containers of one pod, by name and by the ids in their cgroups' names.

use serde::{Deserialize, Serialize};

use super::is_valid;
use crate::object_name::LONGEST_LABEL;

/// Maximum length of an id of a container runtime.
const LONGEST_ID: usize = 128;
/// Maximum number of ids, and of containers, per pod: each container has at most two ids, the
/// current and the previous one.
const MAX_IDS: usize = 256;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    /// The list of the pod's specification that contains it, if known.
    pub list: Option<ContainerList>,
    /// The name, which is unique in all lists of a pod together.
    pub name: Box<str>,
    /// The container restarts if its main process is killed, according to its restart policy or
    /// that of its pod; `None` if unknown.
    #[serde(default)]
    pub restarts: Option<bool>,
    /// The memory limits of the specification; `None` if unknown.
    #[serde(default)]
    pub limits: Option<MemoryLimits>,
}

/// The fields of a pod's specification that set a memory limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryLimits {
    /// `resources.limits.memory` of the container.
    pub container: bool,
    /// `spec.resources.limits.memory` of the pod. It limits a container without a limit, too.
    pub pod: bool,
}

/// The lists of containers in a pod's specification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContainerList {
    /// `spec.containers`.
    Containers,
    /// `spec.initContainers`.
    Init,
    /// `spec.ephemeralContainers`.
    Ephemeral,
}

impl Container {
    /// Returns `None` if the name is invalid.
    pub fn new(list: Option<ContainerList>, name: &str) -> Option<Self> {
        is_valid(name, LONGEST_LABEL).then(|| Self {
            list,
            name: name.into(),
            restarts: None,
            limits: None,
        })
    }

    #[must_use]
    pub fn restarting(self, restarts: Option<bool>) -> Self {
        Self { restarts, ..self }
    }

    #[must_use]
    pub fn limited(self, limits: MemoryLimits) -> Self {
        Self {
            limits: Some(limits),
            ..self
        }
    }

    /// Returns the kubelet's form of `involvedObject.fieldPath`: `spec.containers{web}`.
    pub fn field_path(&self) -> Option<String> {
        let list = match self.list? {
            ContainerList::Containers => "containers",
            ContainerList::Init => "initContainers",
            ContainerList::Ephemeral => "ephemeralContainers",
        };
        Some(format!("spec.{list}{{{}}}", self.name))
    }
}

/// The known containers of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Containers {
    by_id: Vec<(Box<str>, Container)>,
    specified: Vec<Container>,
}

impl Containers {
    /// Adds a container that has this id, or had it before its restart.
    pub fn add(&mut self, id: &str, container: Container) {
        if self.by_id.len() < MAX_IDS && is_valid(id, LONGEST_ID) {
            // Most pods have two: room for four would take more memory than the names.
            self.by_id.reserve_exact(1);
            self.by_id.push((id.into(), container));
        }
    }

    /// Adds a container of the specification.
    pub fn specify(&mut self, container: Container) {
        if self.specified.len() < MAX_IDS {
            self.specified.reserve_exact(1);
            self.specified.push(container);
        }
    }

    /// Searches the specification only.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<&Container> {
        let mut specified = self.specified.iter();
        specified.find(|container| *container.name == *name)
    }

    /// Returns the container with this id. An unknown id belongs to none of the known containers,
    /// even if there is only one: that container was restarted, or the id is a debugger's or the
    /// sandbox's.
    pub fn find(&self, id: &str) -> Option<&Container> {
        let known = self.by_id.iter().find(|(known, _)| **known == *id);
        known.map(|(_, container)| container)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(name: &str) -> Container {
        Container::new(Some(ContainerList::Containers), name).unwrap()
    }

    #[test]
    fn a_container_is_found_by_its_id_or_its_name_in_the_specification() {
        let mut containers = Containers::default();
        containers.add("aa", container("web"));
        assert_eq!(containers.find("cc"), None, "not even if there is only one");
        containers.add("bb", container("proxy"));
        assert_eq!(containers.find("bb"), Some(&container("proxy")));
        assert_eq!(containers.find("b"), None, "no prefix of an id");

        containers.specify(container("web"));
        assert_eq!(containers.named("web"), Some(&container("web")));
        assert_eq!(containers.named("proxy"), None, "only by its id");
    }

    #[test]
    fn every_list_has_its_field_path() {
        #[rustfmt::skip]
        let rows = [
            (Some(ContainerList::Containers), Some("spec.containers{web}")),
            (Some(ContainerList::Init), Some("spec.initContainers{web}")),
            (Some(ContainerList::Ephemeral), Some("spec.ephemeralContainers{web}")),
            (None, None),
        ];
        for (list, expected) in rows {
            let container = Container::new(list, "web").unwrap();
            assert_eq!(container.field_path().as_deref(), expected);
        }
    }

    #[test]
    fn an_invalid_name_or_id_is_not_stored() {
        for name in ["", "we b", "a\n", "x}", &"a".repeat(64)] {
            assert_eq!(
                Container::new(Some(ContainerList::Containers), name),
                None,
                "{name:?}"
            );
        }
        let mut containers = Containers::default();
        containers.add("a\u{1b}", container("web"));
        for n in 0..2 * MAX_IDS {
            containers.add(&n.to_string(), container("web"));
            containers.specify(container(&format!("web-{n}")));
        }
        assert_eq!(containers.by_id.len(), MAX_IDS);
        assert_eq!(containers.specified.len(), MAX_IDS);
    }
}
