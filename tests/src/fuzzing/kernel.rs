//! Checks data from the kernel: records from a ring, and BTF.

use agent_common::event::{COMM_LEN, NAME_LEN};
use agent_common::{ABI_VERSION, Header};
use nodepulse_core::clock::BootNanos;
use nodepulse_core::record::decode::decode;
use nodepulse_core::record::kmsg::KmsgParser;
use nodepulse_core::record::uevent;
use nodepulse_core::record::{DecodeError, Record};
use nodepulse_linux::kernel::btf::Btf;

/// One record of a ring.
///
/// # Panics
///
/// If decoding invents a value, or reads beyond a record's end.
pub fn ring_record(input: &[u8]) {
    let decoded = decode(input);
    match &decoded {
        Ok(event) => {
            assert_eq!(input.get(..2), Some(&ABI_VERSION.to_le_bytes()[..]));
            bounded(event);
        }
        Err(DecodeError::Short { got, need }) => {
            assert_eq!(*got, input.len());
            assert!(got < need, "{got} of {need}");
        }
        Err(DecodeError::Version { got }) => {
            assert!(input.len() >= size_of::<Header>());
            assert_ne!(*got, ABI_VERSION);
        }
    }
    if !matches!(decoded, Err(DecodeError::Short { .. })) {
        // Fields that a newer object adds at the end change nothing.
        assert_eq!(decode(&[input, &[0xa5; 8]].concat()), decoded);
    }
}

fn bounded(event: &Record) {
    let Record::OomKill(kill) = event else { return };
    for (text, limit) in [(&kill.comm, COMM_LEN), (&kill.trigger_comm, COMM_LEN)]
        .into_iter()
        .chain(kill.names.iter().map(|name| (name, NAME_LEN)))
    {
        assert!(text.len() <= limit && !text.contains(&0), "{text:?}");
        super::escape(text);
    }
}

/// Records of the kernel's log, each ended by a zero byte.
///
/// # Panics
///
/// If a record that the kernel did not write reports a kill, or a size is too large.
pub fn kernel_log(input: &[u8]) {
    let mut log = KmsgParser::default();
    let mut by_kernel = false;
    for record in input.split(|b| *b == 0) {
        by_kernel |= facility(record) == Some(0);
        log.record(record);
        if log.is_full() {
            break;
        }
    }
    let kills = log.take(BootNanos(1 << 40));
    assert!(by_kernel || kills.is_empty(), "{kills:?}");
    assert!(kills.len() <= input.len() / 8 + 1, "{}", kills.len());
    for kill in &kills {
        for text in [
            Some(&kill.comm),
            kill.cgroup.as_ref(),
            kill.trigger.as_ref(),
        ] {
            let text = text.map_or(&[][..], Vec::as_slice);
            assert!(text.len() <= input.len());
            super::escape(text);
        }
    }
}

/// Parses the facility that wrote a record: `<priority and facility>,…`.
fn facility(record: &[u8]) -> Option<u64> {
    let number = record.split(|b| *b == b',').next()?;
    let number: u64 = str::from_utf8(number).ok()?.parse().ok()?;
    Some(number >> 3)
}

/// An announcement of a device.
///
/// # Panics
///
/// If a name leaves its directory, or is accepted although it is no disk.
pub fn disk_announcement(input: &[u8]) {
    let Some(change) = uevent::parse(input) else {
        return;
    };
    let name = change.name.as_str();
    assert!(
        (1..32).contains(&name.len()) && !name.contains('/'),
        "{name:?}"
    );
    assert!(name != "." && name != "..");
    let has_field = |field: &[u8]| input.split(|b| *b == 0).any(|one| one == field);
    assert!(has_field(b"SUBSYSTEM=block") && has_field(b"DEVTYPE=disk"));
    super::escape(name.as_bytes());
}

/// A BTF file.
///
/// # Panics
///
/// If an answer leaves the file's own numbers. That it ends at all is libFuzzer's to see.
pub fn kernel_types(input: &[u8]) {
    const NAMES: &[&str] = &["outer", "inner", "colour", "btf_trace_paint"];
    let Ok(btf) = Btf::parse(input.to_vec(), NAMES) else {
        return;
    };
    for path in ["outer.a", "outer.i.x", "outer.n[2].x", "inner.missing"] {
        assert!(
            btf.offset(path).is_none_or(|at| at <= u32::MAX / 8),
            "{path}"
        );
        // An array may begin within a byte, which must not matter.
        let _: bool = btf.is_array(path);
    }
    let argument = btf.tracepoint_argument("paint", 0);
    assert!(argument.is_none_or(|name| name.len() < input.len()));
    assert_eq!(btf.tracepoint_argument("paint", u32::MAX), None);
    assert_eq!(btf.tracepoint_argument("missing", 0), None);
    assert_eq!(btf.size("missing"), None);
    let _: Option<u32> = btf.enum_value("colour", "BLUE");
}
