//! An image with one layer, as the files of an OCI image layout 1.0.0.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use anyhow::{Context as _, Result};
use flate2::{Compression, GzBuilder};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use tar::{EntryType, Header};

/// The path of the program in the image, and its entry point.
const PROGRAM: &str = "nodepulse";

/// What is written next to the program.
#[derive(Debug)]
pub struct About {
    pub name: String,
    pub version: String,
    pub arch: &'static str,
    /// Commit, or nothing outside a checkout.
    pub revision: String,
    /// Time of the commit, RFC 3339.
    pub created: String,
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
                "Kubernetes node agent that learns from the kernel, by eBPF",
            ),
            ("version", &self.version),
            ("licenses", "Apache-2.0"),
        ]);
        if !self.revision.is_empty() {
            annotations.extend([("revision", &*self.revision), ("created", &*self.created)]);
        }
        let keyed = annotations.into_iter();
        keyed
            .map(|(key, value)| (format!("org.opencontainers.image.{key}"), value.into()))
            .collect::<serde_json::Map<String, Value>>()
            .into()
    }
}

/// Files by their path in the layout.
pub struct Blobs {
    pub files: BTreeMap<String, Vec<u8>>,
    /// Digest of the image's manifest: what pins the image.
    pub manifest: String,
}

impl Blobs {
    /// Keeps `bytes` under their digest; gives their descriptor.
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
}

pub fn image(program: &[u8], about: &About) -> Result<Blobs> {
    let mut blobs = Blobs {
        files: BTreeMap::new(),
        manifest: String::new(),
    };
    let layer = layer(program)?;
    let config = config(about, &layer);
    let config = blobs.add("config.v1+json", config.to_string().into_bytes());
    let layer = blobs.add("layer.v1.tar+gzip", compressed(&layer)?);
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config,
        "layers": [layer],
        "annotations": about.annotations(),
    });
    let mut manifest = blobs.add("manifest.v1+json", manifest.to_string().into_bytes());
    blobs.manifest = manifest["digest"].as_str().unwrap_or_default().to_owned();
    manifest["platform"] = json!({"architecture": about.arch, "os": "linux"});
    manifest["annotations"] = json!({
        "org.opencontainers.image.ref.name": about.version,
        // What `ctr image import` calls it.
        "io.containerd.image.name": about.reference(),
    });
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [manifest],
    });
    let files = [
        ("index.json", index),
        ("oci-layout", json!({"imageLayoutVersion": "1.0.0"})),
    ];
    for (name, json) in files {
        blobs
            .files
            .insert(name.to_owned(), json.to_string().into_bytes());
    }
    Ok(blobs)
}

/// What a runtime needs to start it.
fn config(about: &About, layer: &[u8]) -> Value {
    let mut config = json!({
        "architecture": about.arch,
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

/// One file of root, executable by every user, without a time.
fn layer(program: &[u8]) -> Result<Vec<u8>> {
    let mut layer = tar::Builder::new(Vec::new());
    append(&mut layer, PROGRAM, 0o755, program)?;
    Ok(layer.into_inner()?)
}

fn compressed(layer: &[u8]) -> Result<Vec<u8>> {
    // Neither a time nor a system in the header.
    let mut gzip = GzBuilder::new()
        .operating_system(255)
        .write(Vec::new(), Compression::best());
    gzip.write_all(layer)?;
    Ok(gzip.finish()?)
}

/// All of the layout at `directory` as one file, which `ctr`, `skopeo` and `podman` take.
pub fn archive(directory: &Path, to: impl Write) -> Result<()> {
    let mut archive = tar::Builder::new(to);
    let mut names = vec!["index.json".to_owned(), "oci-layout".to_owned()];
    let blobs = directory.join("blobs/sha256");
    for entry in std::fs::read_dir(&blobs).with_context(|| blobs.display().to_string())? {
        let name = entry?.file_name();
        names.push(format!("blobs/sha256/{}", name.to_string_lossy()));
    }
    names.sort();
    for name in names {
        let bytes = std::fs::read(directory.join(&name)).with_context(|| name.clone())?;
        append(&mut archive, &name, 0o644, &bytes)?;
    }
    archive.finish()?;
    Ok(())
}

fn append(to: &mut tar::Builder<impl Write>, name: &str, mode: u32, bytes: &[u8]) -> Result<()> {
    let mut header = Header::new_ustar();
    header.set_entry_type(EntryType::Regular);
    header.set_size(u64::try_from(bytes.len())?);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    to.append_data(&mut header, name, bytes)?;
    Ok(())
}

/// In hex.
pub fn sha256(bytes: &[u8]) -> String {
    let digest = digest(&SHA256, bytes);
    digest
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn about() -> About {
        About {
            name: "localhost/nodepulse".to_owned(),
            version: "1.2.3".to_owned(),
            arch: "arm64",
            revision: "c0ffee".to_owned(),
            created: "2026-01-02T03:04:05+00:00".to_owned(),
        }
    }

    /// The blob of a descriptor, checked against the descriptor's digest and size.
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

    #[test]
    fn digests_lead_from_the_index_to_the_program() {
        let blobs = image(b"\x7fELF program", &about()).unwrap();
        let index = json(&blobs.files["index.json"]);
        let entry = &index["manifests"][0];
        assert_eq!(entry["digest"], blobs.manifest.as_str());
        let manifest = json(blob(&blobs, entry));
        let config = json(blob(&blobs, &manifest["config"]));
        assert_eq!(config["architecture"], "arm64");
        assert_eq!(config["config"]["Entrypoint"], json!(["/nodepulse"]));

        let mut layer = Vec::new();
        let packed = blob(&blobs, &manifest["layers"][0]);
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
        let mut program = String::new();
        entry.read_to_string(&mut program).unwrap();
        assert_eq!(program, "\u{7f}ELF program");
        assert!(entries.next().is_none(), "nothing else is in the image");
        assert_eq!(blobs.files.len(), 5, "index, version, and three blobs");
    }

    #[test]
    fn the_same_program_is_the_same_image() {
        let made = |program: &[u8]| image(program, &about()).unwrap().files;
        assert_eq!(made(b"a"), made(b"a"));
        assert_ne!(made(b"a"), made(b"b"));
    }
}
