//! Writes an uncompressed archive in the format that the kernel unpacks at boot: `newc`, see
//! `Documentation/driver-api/early-userspace/buffer-format.rst`.

use std::collections::BTreeMap;
use std::io::{self, Read as _};

use anyhow::{Context as _, Result};
use tar::EntryType;

use crate::archive::{File, directories, paths};

/// Packs programs and their libraries, of which `init` becomes PID 1, and the console, which the
/// kernel opens before it runs PID 1.
pub fn pack<N: AsRef<str>>(programs: &[(N, Vec<u8>)]) -> Vec<u8> {
    const DIRECTORY: u32 = 0o040_755;
    const PROGRAM: u32 = 0o100_755;
    const CHARACTER_DEVICE: u32 = 0o020_600;
    let mut archive = Archive::default();
    let parents = directories(programs.iter().map(|(name, _)| name.as_ref()));
    let parents = parents.iter().map(String::as_str);
    let directories = parents.chain(["dev", "proc", "sys", "tmp"]);
    for directory in directories.filter(|path| !path.is_empty()) {
        archive.add(directory, DIRECTORY, (0, 0), &[]);
    }
    archive.add("dev/console", CHARACTER_DEVICE, (5, 1), &[]);
    for (name, program) in programs {
        archive.add(name.as_ref(), PROGRAM, (0, 0), program);
    }
    archive.add("TRAILER!!!", 0, (0, 0), &[]);
    archive.bytes
}

/// Packs a root directory, given as an archive of tar, and further files. A hard link to a program
/// becomes a copy of it.
pub fn pack_root(root: impl io::Read, files: &[File]) -> Result<Vec<u8>> {
    const REGULAR: u32 = 0o100_000;
    const DIRECTORY: u32 = 0o040_000;
    const SYMLINK: u32 = 0o120_000;
    let mut archive = Archive::default();
    let mut contents: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let mut root = tar::Archive::new(root);
    for entry in root.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.display().to_string();
        let path = path
            .trim_start_matches("./")
            .trim_end_matches('/')
            .to_owned();
        let mode = entry.header().mode()? & 0o7777;
        let link = entry.link_name()?.map(|link| link.display().to_string());
        match entry.header().entry_type() {
            _ if path.is_empty() || path.starts_with("dev/") => {}
            EntryType::Directory => archive.add(&path, DIRECTORY | mode, (0, 0), &[]),
            EntryType::Symlink => {
                let link = link.unwrap_or_default();
                archive.add(&path, SYMLINK | 0o777, (0, 0), link.as_bytes());
            }
            EntryType::Link => {
                let to = link.unwrap_or_default();
                let to = to.trim_start_matches("./");
                let content = contents.get(to).with_context(|| format!("{path} → {to}"))?;
                archive.add(&path, REGULAR | mode, (0, 0), content);
            }
            EntryType::Regular => {
                let mut content = Vec::new();
                entry.read_to_end(&mut content)?;
                archive.add(&path, REGULAR | mode, (0, 0), &content);
                contents.insert(path, content);
            }
            _ => {}
        }
    }
    archive.add("dev/console", 0o020_600, (5, 1), &[]);
    // The kernel creates no missing directories, and ignores one that exists.
    let parents = directories(paths(files));
    for directory in parents.iter().filter(|path| !path.is_empty()) {
        archive.add(directory, DIRECTORY | 0o755, (0, 0), &[]);
    }
    for file in files {
        archive.add(&file.path, REGULAR | file.mode, (0, 0), &file.bytes);
    }
    archive.add("TRAILER!!!", 0, (0, 0), &[]);
    Ok(archive.bytes)
}

#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    /// Number of files: with the same inode number, they would be hard links to one another.
    files: u32,
}

impl Archive {
    fn add(&mut self, name: &str, mode: u32, device: (u32, u32), content: &[u8]) {
        self.files += 1;
        let length = |of: usize| u32::try_from(of).unwrap_or(u32::MAX);
        let head = [
            self.files,
            mode,
            0, // user
            0, // group
            1, // links
            0, // time
            length(content.len()),
            0, // device that it is on, in two numbers
            0,
            device.0,
            device.1,
            length(name.len() + 1),
            0, // checksum: this format has none
        ];
        self.bytes.extend(b"070701");
        for field in head {
            self.bytes.extend(format!("{field:08x}").bytes());
        }
        self.bytes.extend(name.bytes().chain([0]));
        self.align();
        self.bytes.extend(content);
        self.align();
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_a_head_a_name_and_its_content_each_filled_up_to_four_bytes() {
        let mut archive = Archive::default();
        archive.add("init", 0o100_755, (0, 0), b"abcde");
        let expected = [
            "07070100000001000081ed000000000000000000000001000000000000000500000000",
            "000000000000000000000000",
            "0000000500000000",
            "init\0\0",
            "abcde\0\0\0",
        ];
        let text = String::from_utf8(archive.bytes).unwrap();
        assert_eq!(text, expected.concat());
    }

    #[test]
    fn an_archive_contains_the_programs_and_a_console_and_ends_with_the_trailer() {
        let bytes = pack(&[("init", b"one".to_vec()), ("provoke", b"two".to_vec())]);
        assert_eq!(
            names(&bytes),
            [
                "dev",
                "proc",
                "sys",
                "tmp",
                "dev/console",
                "init",
                "provoke",
                "TRAILER!!!",
            ]
        );
    }

    #[test]
    fn a_root_directory_keeps_its_links_and_has_no_devices_but_the_console() {
        let mut root = tar::Builder::new(Vec::new());
        let mut add = |kind, path: &str, link: Option<&str>, content: &[u8]| {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(kind);
            header.set_mode(0o755);
            header.set_size(content.len() as u64);
            if let Some(link) = link {
                header.set_link_name(link).unwrap();
            }
            root.append_data(&mut header, path, content).unwrap();
        };
        add(EntryType::Directory, "usr/", None, b"");
        add(EntryType::Regular, "usr/perl", None, b"perl");
        add(EntryType::Link, "usr/perl5", Some("./usr/perl"), b"");
        add(EntryType::Symlink, "bin", Some("usr/bin"), b"");
        add(EntryType::Directory, "dev/pts/", None, b"");
        let root = root.into_inner().unwrap();
        let further = [File::new("etc/a", 0o644, "a")];
        let bytes = pack_root(&*root, &further).unwrap();
        let expected = [
            "usr",
            "usr/perl",
            "usr/perl5",
            "bin",
            "dev/console",
            "etc",
            "etc/a",
        ];
        let names = names(&bytes);
        assert_eq!(names[..names.len() - 1], expected);
        let text = String::from_utf8_lossy(&bytes);
        assert_eq!(text.matches("usr/perl5\0").count(), 1);
        assert!(text.contains("usr/bin"), "the target of the link");
    }

    /// Parses the archive like the kernel.
    fn names(mut bytes: &[u8]) -> Vec<String> {
        let mut names = Vec::new();
        while let Some(head) = bytes.get(..110) {
            assert_eq!(&head[..6], b"070701");
            let field = |n: usize| {
                let hex = std::str::from_utf8(&head[6 + 8 * n..14 + 8 * n]).unwrap();
                usize::from_str_radix(hex, 16).unwrap()
            };
            let (content, name) = (field(6), field(11));
            names.push(String::from_utf8(bytes[110..110 + name - 1].to_vec()).unwrap());
            bytes = &bytes[(110 + name).next_multiple_of(4) + content.next_multiple_of(4)..];
        }
        names
    }
}
