//! How an Event names a container.

use serde::{Deserialize, Serialize};

use crate::pods::{Container, Containers};

/// Characters of a container's id that are shown, as runtimes do.
pub(super) const SHORT_ID: usize = 12;

/// How a message names a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContainerLabel {
    /// By its name in the pod's specification.
    Name(Container),
    /// By its id, since its name is unknown.
    Id(String),
}

impl ContainerLabel {
    /// How it is called, and what its specification has.
    pub(super) fn called(&self) -> (&str, Option<&Container>) {
        match self {
            Self::Name(container) => (&container.name, Some(container)),
            Self::Id(id) => (id.get(..SHORT_ID).unwrap_or(id), None),
        }
    }

    pub(super) fn whereabouts(&self) -> String {
        format!(" in container {}", self.called().0)
    }

    /// The container with this label, if it is one of `containers`.
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
