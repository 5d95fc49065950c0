//! Kernel uevents (`lib/kobject_uevent.c`) → [`DiskChange`].

use serde::{Deserialize, Serialize};

use crate::units::DeviceNumber;

/// `DISK_NAME_LEN` (`include/linux/blkdev.h`), with the final NUL.
const DISK_NAME_LEN: usize = 32;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskChange {
    pub action: DiskAction,
    pub device: DeviceNumber,
    /// Name under `/sys/block`: UTF-8 without a slash, shorter than 32 bytes, not `.` or `..`.
    /// Escape it before display.
    pub name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DiskAction {
    Added,
    Removed,
    /// Its size, medium or state changed.
    Changed,
}

/// Parses one datagram: `<action>@<path>`, then `KEY=value` fields, each NUL-terminated.
///
/// `None` for other devices and for malformed datagrams. The first of duplicate keys is used.
pub fn parse(datagram: &[u8]) -> Option<DiskChange> {
    let value = |key: &str| {
        let mut fields = datagram.split(|b| *b == 0);
        let value = fields.find_map(|field| field.strip_prefix(key.as_bytes())?.strip_prefix(b"="));
        str::from_utf8(value?).ok()
    };
    if value("SUBSYSTEM")? != "block" || value("DEVTYPE")? != "disk" {
        return None;
    }
    Some(DiskChange {
        action: match value("ACTION")? {
            "add" => DiskAction::Added,
            "remove" => DiskAction::Removed,
            "change" => DiskAction::Changed,
            _ => return None,
        },
        device: DeviceNumber::parse(&format!("{}:{}", value("MAJOR")?, value("MINOR")?))?,
        name: sysfs_name(value("DEVNAME")?)?,
    })
}

/// sysfs writes a slash in a name as `!`: `cciss!c0d0`.
fn sysfs_name(devname: &str) -> Option<String> {
    let name = devname.replace('/', "!");
    let fits = (1..DISK_NAME_LEN).contains(&name.len());
    (fits && name != "." && name != "..").then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VDA: &str = "change@/devices/pci0000:00/0000:00:01.0/virtio0/block/vda|ACTION=change|\
        DEVPATH=/devices/pci0000:00/0000:00:01.0/virtio0/block/vda|SUBSYSTEM=block|SYNTH_UUID=0|\
        MAJOR=254|MINOR=0|DEVNAME=vda|DEVTYPE=disk|DISKSEQ=9|SEQNUM=1203|";

    fn read(text: &str) -> Option<DiskChange> {
        parse(text.replace('|', "\0").as_bytes())
    }

    #[test]
    fn a_disk_change_has_name_and_number() {
        let vda = |action| DiskChange {
            action,
            device: DeviceNumber {
                major: 254,
                minor: 0,
            },
            name: "vda".to_owned(),
        };
        let rows = [
            ("ACTION=change", DiskAction::Changed),
            ("ACTION=add", DiskAction::Added),
            ("ACTION=remove", DiskAction::Removed),
        ];
        for (action, expected) in rows {
            let text = VDA.replace("ACTION=change", action);
            assert_eq!(read(&text), Some(vda(expected)), "{action}");
        }
        let cciss = VDA.replace("DEVNAME=vda", "DEVNAME=cciss/c0d0");
        assert_eq!(read(&cciss).unwrap().name, "cciss!c0d0");
    }

    #[test]
    fn other_and_malformed_datagrams_are_ignored() {
        let long = format!("DEVNAME={}", "x".repeat(32));
        let rows = [
            ("SUBSYSTEM=block", "SUBSYSTEM=net", "another subsystem"),
            ("SUBSYSTEM=block", "SUBSYSTEM=", "none"),
            ("DEVTYPE=disk", "DEVTYPE=partition", "a partition"),
            ("DEVTYPE=disk|", "", "no type"),
            ("ACTION=change", "ACTION=bind", "another action"),
            ("MAJOR=254", "MAJOR=", "no number"),
            ("MAJOR=254", "MAJOR=+254", "a sign"),
            ("MINOR=0", "MINOR=4294967296", "a number too large"),
            ("MINOR=0|", "", "no minor"),
            ("DEVNAME=vda", "DEVNAME=", "no name"),
            ("DEVNAME=vda", "DEVNAME=..", "a path traversal"),
            ("DEVNAME=vda", &long, "a name too long"),
            ("DEVNAME=vda|DEVTYPE=disk|", "DEV", "cut off"),
        ];
        for (from, to, why) in rows {
            let text = VDA.replace(from, to);
            assert_ne!(text, VDA, "{why}");
            assert_eq!(read(&text), None, "{why}");
        }
        assert_eq!(parse(b""), None);
        assert_eq!(parse(b"libudev\0\xfe\xed\xca\xfe\0\0\0\x28"), None);
        let not_text = VDA.replace('|', "\0").replace("=vda", "=v\u{0}");
        let mut bytes = not_text.into_bytes();
        bytes.push(0xff);
        assert_eq!(parse(&bytes).unwrap().name, "v", "the rest is ignored");
        let every_cut = VDA.replace('|', "\0");
        for cut in 0..every_cut.len() {
            let found = parse(every_cut.as_bytes().get(..cut).unwrap());
            let whole = |change: DiskChange| "vda".starts_with(&change.name);
            assert!(found.is_none_or(whole), "cut at {cut}");
        }
    }
}
