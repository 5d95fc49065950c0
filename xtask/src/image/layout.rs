//! Builds images with one layer each, as the files of an OCI image layout 1.0.0. Several
//! architectures are one image index, from which a runtime selects its architecture.

use std::collections::BTreeMap;

use anyhow::Result;
use serde_json::{Map, Value, json};

use crate::archive::{self, File};
use crate::files::sha256;

/// The path of the program in the image, and its entry point.
pub const PROGRAM: &str = "nodepulse";

/// The data that all architectures share.
#[derive(Debug)]
pub struct About {
    pub name: String,
    pub version: String,
    /// The commit; empty outside a checkout.
    pub revision: String,
    /// Time of the commit, in RFC 3339.
    pub created: String,
}

/// The image of one architecture.
pub struct Image<'a> {
    pub arch: &'static str,
    /// Files of the layer.
    pub files: &'a [File],
}

impl About {
    pub fn reference(&self) -> String {
        format!("{}:{}", self.name, self.version)
    }

    fn annotations(&self) -> Value {
        let mut annotations = BTreeMap::from([
            ("title", "nodepulse"),
            (
                "description",
                "Kubernetes node agent that observes the kernel by eBPF",
            ),
            ("version", &self.version),
            ("licenses", "Apache-2.0"),
            ("url", "https://nodepulse.dev"),
            ("documentation", "https://nodepulse.dev/docs"),
            ("vendor", "nodepulse"),
        ]);
        if !self.revision.is_empty() {
            annotations.extend([("revision", &*self.revision), ("created", &*self.created)]);
        }
        let keyed = annotations.into_iter();
        keyed
            .map(|(key, value)| (format!("org.opencontainers.image.{key}"), value.into()))
            .collect::<Map<String, Value>>()
            .into()
    }
}

/// Files by their path in the layout.
pub struct Blobs {
    pub files: BTreeMap<String, Vec<u8>>,
    /// Digest of the manifest, or of the index of several.
    pub digest: String,
}

impl Blobs {
    /// Stores `bytes` under their digest, and returns their descriptor.
    fn add(&mut self, media_type: &str, bytes: Vec<u8>) -> Value {
        let digest = sha256(&bytes);
        let descriptor = json!({
            "mediaType": format!("application/vnd.oci.image.{media_type}"),
            "digest": format!("sha256:{digest}"),
            "size": bytes.len(),
        });
        self.files.insert(format!("blobs/sha256/{digest}"), bytes);
        descriptor
    }

    /// Packs the layout as one file, which `ctr`, `skopeo` and `podman` import.
    pub fn archive(&self) -> Result<Vec<u8>> {
        let files: Vec<File> = self
            .files
            .iter()
            .map(|(path, bytes)| File::new(path, 0o644, bytes.as_slice()))
            .collect();
        archive::tar(&files, "", 0)
    }
}

pub fn layout(images: &[Image<'_>], about: &About) -> Result<Blobs> {
    let mut blobs = Blobs {
        files: BTreeMap::new(),
        digest: String::new(),
    };
    let mut manifests = Vec::new();
    for image in images {
        manifests.push(manifest(&mut blobs, image, about)?);
    }
    let mut named = match manifests.as_slice() {
        [one] => one.clone(),
        several => {
            let index = index(several, Some(about.annotations()));
            blobs.add("index.v1+json", index.to_string().into_bytes())
        }
    };
    blobs.digest = named["digest"].as_str().unwrap_or_default().to_owned();
    named["annotations"] = json!({
        "org.opencontainers.image.ref.name": about.version,
        // The name that `ctr image import` assigns.
        "io.containerd.image.name": about.reference(),
    });
    let files = [
        ("index.json", index(&[named], None)),
        ("oci-layout", json!({"imageLayoutVersion": "1.0.0"})),
    ];
    for (name, json) in files {
        blobs
            .files
            .insert(name.to_owned(), json.to_string().into_bytes());
    }
    Ok(blobs)
}

fn index(manifests: &[Value], annotations: Option<Value>) -> Value {
    let mut index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": manifests,
    });
    if let Some(annotations) = annotations {
        index["annotations"] = annotations;
    }
    index
}

/// Adds an architecture's blobs, and returns the descriptor of its manifest.
fn manifest(blobs: &mut Blobs, image: &Image<'_>, about: &About) -> Result<Value> {
    let layer = archive::tar(image.files, "", 0)?;
    let config = config(about, image.arch, &layer);
    let config = blobs.add("config.v1+json", config.to_string().into_bytes());
    let layer = blobs.add("layer.v1.tar+gzip", archive::gzip(&layer)?);
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config,
        "layers": [layer],
        "annotations": about.annotations(),
    });
    let mut manifest = blobs.add("manifest.v1+json", manifest.to_string().into_bytes());
    manifest["platform"] = json!({"architecture": image.arch, "os": "linux"});
    Ok(manifest)
}

/// Returns the configuration that a runtime starts the program with.
fn config(about: &About, arch: &str, layer: &[u8]) -> Value {
    let mut config = json!({
        "architecture": arch,
        "os": "linux",
        "config": {
            "Entrypoint": [format!("/{PROGRAM}")],
            "Labels": about.annotations(),
        },
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{}", sha256(layer))]},
        "history": [{"created_by": "cargo xtask image"}],
    });
    if !about.created.is_empty() {
        config["created"] = about.created.as_str().into();
    }
    config
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn about() -> About {
        About {
            name: "localhost/nodepulse".to_owned(),
            version: "1.2.3".to_owned(),
            revision: "c0ffee".to_owned(),
            created: "2026-01-02T03:04:05+00:00".to_owned(),
        }
    }

    fn files(program: &[u8]) -> [File; 1] {
        [File::new(PROGRAM, 0o755, program)]
    }

    /// Returns the blob of a descriptor, and checks its digest and size.
    fn blob<'a>(blobs: &'a Blobs, descriptor: &Value) -> &'a [u8] {
        let digest = descriptor["digest"].as_str().unwrap();
        let bytes = &blobs.files[&digest.replace("sha256:", "blobs/sha256/")];
        assert_eq!(format!("sha256:{}", sha256(bytes)), digest);
        assert_eq!(descriptor["size"], bytes.len());
        bytes
    }

    fn json(bytes: &[u8]) -> Value {
        serde_json::from_slice(bytes).unwrap()
    }

    /// Returns the architecture of the image with this manifest, and the program in its layer.
    fn program(blobs: &Blobs, manifest: &Value) -> (String, Vec<u8>) {
        let manifest = json(blob(blobs, manifest));
        let config = json(blob(blobs, &manifest["config"]));
        assert_eq!(config["config"]["Entrypoint"], json!(["/nodepulse"]));
        let labels = &config["config"]["Labels"];
        assert_eq!(labels["org.opencontainers.image.revision"], "c0ffee");

        let mut layer = Vec::new();
        let packed = blob(blobs, &manifest["layers"][0]);
        let mut unpack = flate2::read::GzDecoder::new(packed);
        unpack.read_to_end(&mut layer).unwrap();
        let diff_id = format!("sha256:{}", sha256(&layer));
        assert_eq!(config["rootfs"]["diff_ids"], json!([diff_id]));

        let mut archive = tar::Archive::new(&*layer);
        let mut entries = archive.entries().unwrap();
        let mut entry = entries.next().unwrap().unwrap();
        let header = entry.header();
        let header_fields = (
            header.mode().unwrap(),
            header.uid().unwrap(),
            header.mtime().unwrap(),
        );
        assert_eq!(header_fields, (0o755, 0, 0));
        let mut program = Vec::new();
        entry.read_to_end(&mut program).unwrap();
        assert!(entries.next().is_none(), "nothing else is in the image");
        let arch = config["architecture"].as_str().unwrap();
        (arch.to_owned(), program)
    }

    #[test]
    fn digests_lead_from_the_index_to_the_program() {
        let image = Image {
            arch: "arm64",
            files: &files(b"\x7fELF program"),
        };
        let blobs = layout(&[image], &about()).unwrap();
        let index = json(&blobs.files["index.json"]);
        let entry = &index["manifests"][0];
        assert_eq!(entry["digest"], blobs.digest.as_str());
        let expected = ("arm64".to_owned(), b"\x7fELF program".to_vec());
        assert_eq!(program(&blobs, entry), expected);
        assert_eq!(blobs.files.len(), 5, "index, version, and three blobs");
    }

    #[test]
    fn several_architectures_are_one_index_with_a_program_for_each_platform() {
        let (one, two) = (files(b"one"), files(b"two"));
        let images = [("amd64", &one), ("arm64", &two)];
        let images = images.map(|(arch, files)| Image { arch, files });
        let blobs = layout(&images, &about()).unwrap();
        let named = json(&blobs.files["index.json"])["manifests"][0].clone();
        assert_eq!(named["digest"], blobs.digest.as_str());
        let name = &named["annotations"]["io.containerd.image.name"];
        assert_eq!(name, "localhost/nodepulse:1.2.3");
        let index = json(blob(&blobs, &named));
        let found = index["manifests"].as_array().unwrap().iter().map(|entry| {
            let (arch, program) = program(&blobs, entry);
            let platform = json!({"architecture": arch, "os": "linux"});
            assert_eq!(entry["platform"], platform);
            program
        });
        assert_eq!(found.collect::<Vec<_>>(), [b"one", b"two"]);
    }

    #[test]
    fn the_same_program_is_the_same_image() {
        let made = |program: &[u8]| {
            let image = Image {
                arch: "amd64",
                files: &files(program),
            };
            layout(&[image], &about()).unwrap().files
        };
        assert_eq!(made(b"a"), made(b"a"));
        assert_ne!(made(b"a"), made(b"b"));
    }
}
