//! The names of containers in Events.

use serde::{Deserialize, Serialize};

use crate::pods::{Container, Containers};

/// The number of characters of a container's id that are shown, as runtimes do.
pub(super) const SHORT_ID: usize = 12;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContainerLabel {
    /// The name in the pod's specification.
    Name(Container),
    /// The container's id, since its name is unknown.
    Id(String),
}

impl ContainerLabel {
    /// Returns the name or the beginning of the id, and the container if its name is known.
    pub(super) fn called(&self) -> (&str, Option<&Container>) {
        match self {
            Self::Name(container) => (&container.name, Some(container)),
            Self::Id(id) => (id.get(..SHORT_ID).unwrap_or(id), None),
        }
    }

    pub(super) fn whereabouts(&self) -> String {
        format!(" in container {}", self.called().0)
    }

    pub fn find<'a>(&self, containers: &'a Containers) -> Option<&'a Container> {
        match self {
            Self::Name(container) => containers.named(&container.name),
            Self::Id(id) => containers.find(id),
        }
    }

    pub(super) fn field_path(&self) -> Option<Box<str>> {
        match self {
            Self::Name(container) => container.field_path().map(Into::into),
            Self::Id(_) => None,
        }
    }
}
