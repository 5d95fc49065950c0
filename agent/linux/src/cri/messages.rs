//! The messages of the CRI, version v1 (`runtime.v1` of `k8s.io/cri-api`, `api.proto`, Apache-2.0).
//!
//! They contain only the fields that the agent uses. Unknown fields are skipped and missing ones
//! have their default, so that older and newer runtimes are understood. Every request is the empty
//! message: all fields of a request are optional, and the agent filters nothing.

/// The answer to `Version`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct VersionResponse {
    /// Name of the runtime, such as `containerd`.
    #[prost(string, tag = "2")]
    pub runtime_name: String,
    /// Version of the runtime, such as `v1.7.24` or `1.7.24~ds1`.
    #[prost(string, tag = "3")]
    pub runtime_version: String,
}

/// The answer to `Status`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    pub status: Option<RuntimeStatus>,
    /// Handlers of the runtime, since Kubernetes 1.29.
    #[prost(message, repeated, tag = "3")]
    pub runtime_handlers: Vec<RuntimeHandler>,
    /// Features that the runtime implements, since Kubernetes 1.31.
    #[prost(message, optional, tag = "4")]
    pub features: Option<RuntimeFeatures>,
}

/// Part of [`StatusResponse`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RuntimeStatus {
    /// `RuntimeReady`, `NetworkReady` and others.
    #[prost(message, repeated, tag = "1")]
    pub conditions: Vec<RuntimeCondition>,
}

/// Part of [`RuntimeStatus`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RuntimeCondition {
    #[prost(string, tag = "1")]
    pub r#type: String,
    #[prost(bool, tag = "2")]
    pub status: bool,
    /// Reason in CamelCase.
    #[prost(string, tag = "3")]
    pub reason: String,
    #[prost(string, tag = "4")]
    pub message: String,
}

/// Part of [`StatusResponse`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RuntimeHandler {
    /// Empty for the default handler.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Absent if the handler has no features.
    #[prost(message, optional, tag = "2")]
    pub features: Option<RuntimeHandlerFeatures>,
}

/// Part of [`RuntimeHandler`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RuntimeHandlerFeatures {
    /// Mounts can be read-only with all mounts below them.
    #[prost(bool, tag = "1")]
    pub recursive_read_only_mounts: bool,
    #[prost(bool, tag = "2")]
    pub user_namespaces: bool,
}

/// Part of [`StatusResponse`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RuntimeFeatures {
    /// The runtime implements `supplementalGroupsPolicy`.
    #[prost(bool, tag = "1")]
    pub supplemental_groups_policy: bool,
}

/// The answer to `ListImages`. The agent reads it image by image.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ListImagesResponse {
    #[prost(message, repeated, tag = "1")]
    pub images: Vec<Image>,
}

/// Part of [`ListImagesResponse`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Image {
    /// Digest of the configuration of the image.
    #[prost(string, tag = "1")]
    pub id: String,
    /// Names with a tag.
    #[prost(string, repeated, tag = "2")]
    pub repo_tags: Vec<String>,
    /// Names with a digest.
    #[prost(string, repeated, tag = "3")]
    pub repo_digests: Vec<String>,
    /// Size in bytes.
    #[prost(uint64, tag = "4")]
    pub size: u64,
}

/// The answer to `ImageFsInfo`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ImageFsInfoResponse {
    /// File systems of images. The kubelet uses the first.
    #[prost(message, repeated, tag = "1")]
    pub image_filesystems: Vec<FilesystemUsage>,
}

/// Part of [`ImageFsInfoResponse`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct FilesystemUsage {
    #[prost(message, optional, tag = "2")]
    pub fs_id: Option<FilesystemIdentifier>,
}

/// Part of [`FilesystemUsage`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct FilesystemIdentifier {
    /// A directory on the file system.
    #[prost(string, tag = "1")]
    pub mountpoint: String,
}
