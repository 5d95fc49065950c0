//! The containers of one pod, by the ids that their cgroups are called by.

use serde::{Deserialize, Serialize};

use super::fits;

/// Longest name of a container: a DNS label.
const LONGEST_NAME: usize = 63;
/// Longest id that a runtime gives.
const LONGEST_ID: usize = 128;
/// Ids that are kept of one pod: each container has at most two, that of now and the one before.
const MOST_IDS: usize = 256;

/// One container of a pod's specification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    /// Where it stands.
    pub list: List,
    /// Its name there.
    pub name: Box<str>,
}

/// The lists of containers that a pod's specification has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum List {
    /// `spec.containers`.
    Containers,
    /// `spec.initContainers`.
    Init,
    /// `spec.ephemeralContainers`.
    Ephemeral,
}

impl Container {
    /// `None` where that is no name of a container.
    #[must_use]
    pub fn new(list: List, name: &str) -> Option<Self> {
        fits(name, LONGEST_NAME).then(|| Self {
            list,
            name: name.into(),
        })
    }

    /// `spec.containers{web}`: the form that a kubelet gives to `involvedObject.fieldPath`.
    #[must_use]
    pub fn field_path(&self) -> String {
        let list = match self.list {
            List::Containers => "containers",
            List::Init => "initContainers",
            List::Ephemeral => "ephemeralContainers",
        };
        format!("spec.{list}{{{}}}", self.name)
    }
}

/// What is known of a pod's containers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Containers {
    by_id: Vec<(Box<str>, Container)>,
}

impl Containers {
    /// A container has this id, or had it before it was started again.
    pub fn add(&mut self, id: &str, container: Container) {
        if self.by_id.len() < MOST_IDS && fits(id, LONGEST_ID) {
            self.by_id.push((id.into(), container));
        }
    }

    /// The container of this id. One that the API server has not heard of is none of those it knows,
    /// not even where it knows one alone: that one was started again, or it is a debugger's, or the
    /// sandbox.
    #[must_use]
    pub fn find(&self, id: &str) -> Option<&Container> {
        let known = self.by_id.iter().find(|(known, _)| **known == *id);
        known.map(|(_, container)| container)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(name: &str) -> Container {
        Container::new(List::Containers, name).unwrap()
    }

    #[test]
    fn a_container_is_found_by_its_own_id_alone() {
        let mut containers = Containers::default();
        containers.add("aa", container("web"));
        assert_eq!(containers.find("cc"), None, "not the only one's either");
        containers.add("bb", container("proxy"));
        assert_eq!(containers.find("bb"), Some(&container("proxy")));
        assert_eq!(containers.find("b"), None, "an id is whole");
    }

    #[test]
    fn every_list_has_its_field_path() {
        let rows = [
            (List::Containers, "spec.containers{web}"),
            (List::Init, "spec.initContainers{web}"),
            (List::Ephemeral, "spec.ephemeralContainers{web}"),
        ];
        for (list, expected) in rows {
            let container = Container::new(list, "web").unwrap();
            assert_eq!(container.field_path(), expected);
        }
    }

    #[test]
    fn what_no_api_server_lets_through_is_not_kept() {
        for name in ["", "we b", "a\n", "x}", &"a".repeat(64)] {
            assert_eq!(Container::new(List::Containers, name), None, "{name:?}");
        }
        let mut containers = Containers::default();
        containers.add("a\u{1b}", container("web"));
        for n in 0..2 * MOST_IDS {
            containers.add(&n.to_string(), container("web"));
        }
        assert_eq!(containers.by_id.len(), MOST_IDS);
    }
}
