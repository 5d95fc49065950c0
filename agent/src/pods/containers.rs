//! The containers of one pod, by the ids in their cgroups' names.

use serde::{Deserialize, Serialize};

use super::is_valid;

/// Longest name of a container: a DNS label.
const LONGEST_NAME: usize = 63;
/// Longest id of a container runtime.
const LONGEST_ID: usize = 128;
/// Maximum number of ids per pod: each container has at most two, the current and the previous one.
const MAX_IDS: usize = 256;

/// One container of a pod's specification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    /// The list that contains it.
    pub list: ContainerList,
    /// Its name in that list.
    pub name: Box<str>,
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
    /// `None` if the name is invalid.
    pub fn new(list: ContainerList, name: &str) -> Option<Self> {
        is_valid(name, LONGEST_NAME).then(|| Self {
            list,
            name: name.into(),
        })
    }

    /// `spec.containers{web}`: the kubelet's form of `involvedObject.fieldPath`.
    pub fn field_path(&self) -> String {
        let list = match self.list {
            ContainerList::Containers => "containers",
            ContainerList::Init => "initContainers",
            ContainerList::Ephemeral => "ephemeralContainers",
        };
        format!("spec.{list}{{{}}}", self.name)
    }
}

/// The known containers of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Containers {
    by_id: Vec<(Box<str>, Container)>,
}

impl Containers {
    /// A container has this id, or had it before its restart.
    pub fn add(&mut self, id: &str, container: Container) {
        if self.by_id.len() < MAX_IDS && is_valid(id, LONGEST_ID) {
            self.by_id.push((id.into(), container));
        }
    }

    /// The container with this id. An unknown id belongs to none of the known containers, even if
    /// there is only one: that container was restarted, or the id is a debugger's or the sandbox's.
    pub fn find(&self, id: &str) -> Option<&Container> {
        let known = self.by_id.iter().find(|(known, _)| **known == *id);
        known.map(|(_, container)| container)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(name: &str) -> Container {
        Container::new(ContainerList::Containers, name).unwrap()
    }

    #[test]
    fn a_container_is_found_only_by_its_id() {
        let mut containers = Containers::default();
        containers.add("aa", container("web"));
        assert_eq!(containers.find("cc"), None, "not even if there is only one");
        containers.add("bb", container("proxy"));
        assert_eq!(containers.find("bb"), Some(&container("proxy")));
        assert_eq!(containers.find("b"), None, "no prefix of an id");
    }

    #[test]
    fn every_list_has_its_field_path() {
        let rows = [
            (ContainerList::Containers, "spec.containers{web}"),
            (ContainerList::Init, "spec.initContainers{web}"),
            (ContainerList::Ephemeral, "spec.ephemeralContainers{web}"),
        ];
        for (list, expected) in rows {
            let container = Container::new(list, "web").unwrap();
            assert_eq!(container.field_path(), expected);
        }
    }

    #[test]
    fn an_invalid_name_or_id_is_not_stored() {
        for name in ["", "we b", "a\n", "x}", &"a".repeat(64)] {
            assert_eq!(
                Container::new(ContainerList::Containers, name),
                None,
                "{name:?}"
            );
        }
        let mut containers = Containers::default();
        containers.add("a\u{1b}", container("web"));
        for n in 0..2 * MAX_IDS {
            containers.add(&n.to_string(), container("web"));
        }
        assert_eq!(containers.by_id.len(), MAX_IDS);
    }
}
