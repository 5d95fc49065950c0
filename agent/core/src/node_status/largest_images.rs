//! The selection of the images that are reported, as a kubelet makes it.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::reading::container_runtime::NodeImage;

/// Maximum number of reported names of one image. The API server would store any number.
const NAMES: usize = 5;

/// Maximum number of bytes of a name. An image reference has at most 255 for the name and 135 for
/// tag and digest, so a longer text is none.
const NAME_LENGTH: usize = 512;

/// Number of images that are reported without a limit. A Node has at most 1.5 MiB, the limit of
/// etcd, and thus no room for more.
const UNLIMITED: usize = 10_000;

/// An image as the runtime lists it.
#[derive(Debug, Clone, Copy)]
pub struct ListedImage<'a> {
    /// The runtime's id, which decides between images of equal size.
    pub id: &'a str,
    /// Names with a digest.
    pub digests: &'a [String],
    /// Names with a tag.
    pub tags: &'a [String],
    /// In bytes.
    pub size: u64,
}

/// The largest of the images that were offered: by size, then by id, both descending.
#[derive(Debug)]
pub struct LargestImages {
    max: usize,
    kept: BTreeMap<(Reverse<u64>, Reverse<String>), Vec<String>>,
}

impl LargestImages {
    /// Keeps up to `max` images, or without `max` as many as a Node has room for.
    pub fn new(max: Option<usize>) -> Self {
        Self {
            max: max.unwrap_or(UNLIMITED).min(UNLIMITED),
            kept: BTreeMap::new(),
        }
    }

    /// Keeps this image if it is one of the largest so far.
    pub fn offer(&mut self, image: ListedImage<'_>) {
        let names = image.digests.iter().chain(image.tags);
        let names = names.filter(|name| is_reference(name)).take(NAMES);
        let id = image.id.chars().take(NAME_LENGTH).collect();
        let key = (Reverse(image.size), Reverse(id));
        self.kept.insert(key, names.cloned().collect());
        if self.kept.len() > self.max {
            self.kept.pop_last();
        }
    }

    /// Returns the largest image first.
    pub fn into_list(self) -> Vec<NodeImage> {
        let kept = self.kept.into_iter();
        kept.map(|((Reverse(size), _), names)| NodeImage { names, size })
            .collect()
    }
}

/// Returns true if `name` can be an image reference: other text would not identify an image.
fn is_reference(name: &str) -> bool {
    !name.is_empty() && name.len() <= NAME_LENGTH && name.chars().all(|c| c.is_ascii_graphic())
}

/// Returns true if two lists differ only in the order of names within an image, which a runtime
/// need not keep.
pub fn same_images(a: &[NodeImage], b: &[NodeImage]) -> bool {
    let sorted = |image: &NodeImage| {
        let mut names = image.names.clone();
        names.sort();
        (names, image.size)
    };
    a == b || a.iter().map(sorted).eq(b.iter().map(sorted))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize, suffix: &str) -> Vec<String> {
        (0..count).map(|n| format!("r/{n}{suffix}")).collect()
    }

    fn listed(max: Option<usize>, images: &[(&str, u64)]) -> Vec<(u64, String)> {
        let mut largest = LargestImages::new(max);
        for (id, size) in images {
            largest.offer(ListedImage {
                id,
                digests: &[],
                tags: &[format!("of/{id}:1")],
                size: *size,
            });
        }
        let list = largest.into_list().into_iter();
        list.map(|image| (image.size, image.names.concat()))
            .collect()
    }

    #[test]
    fn the_largest_images_are_reported_in_the_kubelets_order() {
        let images = [("a", 5), ("b", 9), ("c", 5), ("d", 1), ("e", 9)];
        let all = ["9 e", "9 b", "5 c", "5 a", "1 d"];
        //  nodeStatusMaxImages, reported
        let rows = [
            (None, 5),
            (Some(9), 5),
            (Some(5), 5),
            (Some(4), 4),
            (Some(1), 1),
            (Some(0), 0),
        ];
        for (max, expected) in rows {
            let list = listed(max, &images).into_iter();
            let list = list.map(|(size, name)| format!("{size} {}", &name[3..4]));
            assert_eq!(list.collect::<Vec<_>>(), all[..expected], "{max:?}");
        }
    }

    #[test]
    fn five_names_are_reported_digests_first() {
        let invalid = vec![
            "a b".to_owned(),
            "\u{1b}[2J".to_owned(),
            String::new(),
            "x".repeat(513),
        ];
        //  digests, tags, reported
        #[rustfmt::skip]
        let rows = [
            (names(2, "@d"), names(2, ":t"), vec!["r/0@d", "r/1@d", "r/0:t", "r/1:t"]),
            (names(2, "@d"), names(9, ":t"), vec!["r/0@d", "r/1@d", "r/0:t", "r/1:t", "r/2:t"]),
            (names(6, "@d"), names(1, ":t"), vec!["r/0@d", "r/1@d", "r/2@d", "r/3@d", "r/4@d"]),
            (Vec::new(), Vec::new(), Vec::new()),
            (invalid, names(1, ":t"), vec!["r/0:t"]),
        ];
        for (digests, tags, expected) in rows {
            let mut largest = LargestImages::new(None);
            let id = "sha256:1";
            largest.offer(ListedImage {
                id,
                digests: &digests,
                tags: &tags,
                size: 1,
            });
            assert_eq!(largest.into_list()[0].names, expected);
        }
    }

    #[test]
    fn the_order_of_names_is_no_change() {
        let image = |names: [&str; 2], size| NodeImage {
            names: names.map(str::to_owned).into(),
            size,
        };
        let rows = [
            (image(["a", "b"], 1), image(["b", "a"], 1), true),
            (image(["a", "b"], 1), image(["a", "c"], 1), false),
            (image(["a", "b"], 1), image(["a", "b"], 2), false),
        ];
        for (before, after, same) in rows {
            assert_eq!(same_images(&[before], &[after]), same);
        }
    }
}
