//! Translates the answers to the agent's types. Lists of images are read image by image, so that a
//! node with thousands of them needs no more memory than one with the reported number.

use std::mem;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use nodepulse_core::escape::escape;
use nodepulse_core::node_status::largest_images::{LargestImages, ListedImage};
use nodepulse_core::reading::container_runtime::{
    NodeImage, RuntimeCondition, RuntimeHandler, RuntimeStatus, RuntimeVersion,
};
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use prost::{DecodeError, Message};

use super::LIMIT;
use super::call::Answer;
use super::messages::{
    Image, ImageFsInfoResponse, RuntimeCondition as Condition, StatusResponse, VersionResponse,
};

/// Maximum number of handlers that are reported. A runtime has a few.
const HANDLERS: usize = 64;

const IMAGES: u32 = 1;

/// Maximum length of the key of a field and of the length of its value.
const FIELD_PREFIX: usize = 20;

/// An answer that is decoded once all of it has arrived.
pub(super) struct Whole<T>(T);

impl<T: Default> Default for Whole<T> {
    fn default() -> Self {
        Self(T::default())
    }
}

impl<T: Message + Default> Answer for Whole<T> {
    type Value = T;
    const TIME_LIMIT: Duration = LIMIT;
    /// An answer has a few KiB. The decoded messages can take forty times its size.
    const PART_LIMIT: usize = 64 << 10;

    fn take(&mut self, _: &mut BytesMut) -> Result<(), DecodeError> {
        Ok(())
    }

    fn end(mut self, rest: Bytes) -> Result<T, DecodeError> {
        self.0.merge(rest)?;
        Ok(self.0)
    }
}

/// The answer to `ListImages`, of which the largest images are kept.
pub(super) struct ImageList(LargestImages);

impl ImageList {
    pub(super) const fn new(largest: LargestImages) -> Self {
        Self(largest)
    }

    /// Takes the first field. Returns its size, or `None` if it has not arrived completely.
    fn field(&mut self, received: &[u8]) -> Result<Option<usize>, DecodeError> {
        let mut rest = received;
        let key = match decode_key(&mut rest) {
            Ok(key) => key,
            // The other bytes have not arrived.
            Err(_) if received.len() < FIELD_PREFIX => return Ok(None),
            Err(err) => return Err(err),
        };
        if key != (IMAGES, WireType::LengthDelimited) {
            return Ok(skipped(key, rest).map(|rest| received.len() - rest));
        }
        let length = match decode_varint(&mut rest) {
            Ok(length) => usize::try_from(length).unwrap_or(usize::MAX),
            Err(_) if received.len() < FIELD_PREFIX => return Ok(None),
            Err(err) => return Err(err),
        };
        let Some(bytes) = rest.get(..length) else {
            return Ok(None);
        };
        let image = Image::decode(bytes)?;
        self.0.offer(ListedImage {
            id: &image.id,
            digests: &image.repo_digests,
            tags: &image.repo_tags,
            size: image.size,
        });
        Ok(Some(received.len() - rest.len() + length))
    }
}

/// Skips the value of a field of a newer runtime. Returns the number of bytes that follow; `None`
/// if the value is incomplete or invalid, which cannot be distinguished before the end.
fn skipped((tag, kind): (u32, WireType), mut rest: &[u8]) -> Option<usize> {
    let skipped = skip_field(kind, tag, &mut rest, DecodeContext::default());
    skipped.ok().map(|()| rest.len())
}

impl Answer for ImageList {
    type Value = Vec<NodeImage>;
    /// A list takes longer while the disk is busy. With the calls before and after it, the next
    /// check ends before the last one ceases to count, after 30 s.
    const TIME_LIMIT: Duration = Duration::from_secs(15);
    /// An image has less than 1 KiB, unless it has many names.
    const PART_LIMIT: usize = 256 << 10;

    fn take(&mut self, received: &mut BytesMut) -> Result<(), DecodeError> {
        while !received.is_empty() {
            let Some(taken) = self.field(received)? else {
                break;
            };
            received.advance(taken);
        }
        Ok(())
    }

    fn end(self, rest: Bytes) -> Result<Self::Value, DecodeError> {
        if !rest.is_empty() {
            // The last field has an error: it is incomplete or cannot be skipped.
            let mut rest = rest;
            let (tag, kind) = decode_key(&mut rest)?;
            skip_field(kind, tag, &mut rest, DecodeContext::default())?;
        }
        Ok(self.0.into_list())
    }
}

pub(super) fn version(answer: VersionResponse) -> RuntimeVersion {
    RuntimeVersion {
        version: Some(normalized(&answer.runtime_version)),
        name: escape(answer.runtime_name),
    }
}

/// Normalizes a version as the kubelet reports it: a semantic version without a leading `v`;
/// otherwise only its numbers, such as `1.6.20` of `1.6.20~ds1`.
fn normalized(text: &str) -> String {
    let text = text.trim();
    let text = text.strip_prefix('v').unwrap_or(text);
    let other = |c: char| !c.is_ascii_digit() && c != '.';
    let (numbers, rest) = text.split_at(text.find(other).unwrap_or(text.len()));
    let is_suffix = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '+' | '.');
    let is_semantic = numbers.split('.').count() == 3
        && (rest.is_empty() || rest.starts_with(['-', '+']))
        && rest.chars().all(is_suffix);
    let numbers = numbers.trim_end_matches('.');
    if is_semantic {
        escape(text)
    } else if numbers.is_empty() {
        "Unknown".to_owned()
    } else {
        escape(numbers)
    }
}

pub(super) fn status(answer: StatusResponse) -> RuntimeStatus {
    let mut conditions = answer.status.unwrap_or_default().conditions;
    let mut condition = |type_: &str| {
        let found = conditions.iter_mut().find(|one| one.r#type == type_)?;
        let Condition {
            status,
            reason,
            message,
            ..
        } = mem::take(found);
        Some(RuntimeCondition {
            is_true: status,
            reason: escape(reason),
            message: escape(message),
        })
    };
    let handlers = answer.runtime_handlers.into_iter().take(HANDLERS);
    RuntimeStatus {
        runtime: condition("RuntimeReady"),
        network: condition("NetworkReady"),
        handlers: handlers
            .map(|handler| {
                let features = handler.features.unwrap_or_default();
                RuntimeHandler {
                    name: escape(handler.name),
                    recursive_read_only_mounts: features.recursive_read_only_mounts,
                    user_namespaces: features.user_namespaces,
                }
            })
            .collect(),
        supplemental_groups_policy: answer
            .features
            .map(|features| features.supplemental_groups_policy),
    }
}

/// Returns the directory of the first file system. Others are those of other snapshotters.
pub(super) fn imagefs(answer: ImageFsInfoResponse) -> Option<PathBuf> {
    let first = answer.image_filesystems.into_iter().next()?;
    let directory = PathBuf::from(first.fs_id?.mountpoint);
    Some(directory).filter(|directory| directory.is_absolute() && *directory != Path::new("/"))
}

#[cfg(test)]
mod tests {
    use super::super::messages::{FilesystemIdentifier, FilesystemUsage, ListImagesResponse};
    use super::*;

    fn images() -> ListImagesResponse {
        let image = |number: u64| Image {
            id: format!("sha256:{number}"),
            repo_tags: vec![format!("example.com/{number}:1")],
            repo_digests: vec![format!("example.com/{number}@sha256:1")],
            size: number,
        };
        ListImagesResponse {
            images: (1..10).map(image).collect(),
        }
    }

    /// Returns the sizes that are reported if the answer comes in pieces of `piece` bytes.
    fn read(bytes: &[u8], piece: usize) -> Result<Vec<u64>, DecodeError> {
        let mut list = ImageList::new(LargestImages::new(Some(3)));
        let mut received = BytesMut::new();
        for piece in bytes.chunks(piece) {
            received.extend_from_slice(piece);
            list.take(&mut received)?;
        }
        let list = list.end(received.freeze())?;
        Ok(list.into_iter().map(|image| image.size).collect())
    }

    #[test]
    fn a_list_is_the_same_in_pieces_of_any_size() {
        let mut bytes = images().encode_to_vec();
        // A field of a newer runtime: number 15, ten bytes.
        let unknown = [&[0x7a, 10][..], &[7; 10]].concat();
        bytes.extend_from_slice(&unknown);
        bytes.splice(0..0, unknown);
        for piece in 1..=bytes.len() {
            assert_eq!(
                read(&bytes, piece).unwrap(),
                [9, 8, 7],
                "pieces of {piece} bytes"
            );
        }
    }

    #[test]
    fn a_list_that_ends_too_early_is_an_error() {
        let bytes = images().encode_to_vec();
        let one = bytes.len() / 9;
        for end in 1..bytes.len() {
            let complete = end % one == 0;
            assert_eq!(read(&bytes[..end], end).is_ok(), complete, "{end} bytes");
        }
        assert_eq!(read(&[], 1).unwrap(), [0; 0]);
    }

    #[test]
    fn versions_are_those_of_the_kubelet() {
        let rows = [
            ("v2.1.4", "2.1.4"),
            ("2.1.4", "2.1.4"),
            ("1.36.0-rc.1+build.7", "1.36.0-rc.1+build.7"),
            ("1.6.20~ds1", "1.6.20"),
            ("1.7", "1.7"),
            ("1.7-x", "1.7"),
            ("v1.7.0 beta", "1.7.0"),
            ("1.2.3-\u{1b}", "1.2.3"),
            ("", "Unknown"),
            ("unknown", "Unknown"),
            ("v", "Unknown"),
        ];
        for (text, expected) in rows {
            assert_eq!(normalized(text), expected, "{text}");
        }
    }

    #[test]
    fn imagefs_is_the_first_file_system() {
        let of = |directories: &[&str]| {
            let usage = |directory: &&str| FilesystemUsage {
                fs_id: Some(FilesystemIdentifier {
                    mountpoint: (*directory).to_owned(),
                }),
            };
            imagefs(ImageFsInfoResponse {
                image_filesystems: directories.iter().map(usage).collect(),
            })
        };
        let rows: [(&[&str], Option<&str>); 5] = [
            (&["/a", "/b"], Some("/a")),
            (&[], None),
            (&["relative"], None),
            (&["/"], None),
            (&[""], None),
        ];
        for (directories, expected) in rows {
            assert_eq!(
                of(directories),
                expected.map(PathBuf::from),
                "{directories:?}"
            );
        }
    }
}
