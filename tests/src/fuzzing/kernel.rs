//! What the kernel hands over: records from a ring, and its own types.

use agent_common::event::{COMM_LEN, NAME_LEN};
use agent_common::{ABI_VERSION, Header};
use nodepulse::event::decode::decode;
use nodepulse::event::{DecodeError, Event};
use nodepulse::kernel::btf::Btf;

/// One record of a ring.
///
/// # Panics
///
/// Where decoding makes something up, or reads what is behind a record's end.
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
        // What a newer object adds behind the fields that we know changes nothing.
        assert_eq!(decode(&[input, &[0xa5; 8]].concat()), decoded);
    }
}

fn bounded(event: &Event) {
    let Event::OomKill(kill) = event else { return };
    for (text, limit) in [(&kill.comm, COMM_LEN), (&kill.trigger_comm, COMM_LEN)]
        .into_iter()
        .chain(kill.names.iter().map(|name| (name, NAME_LEN)))
    {
        assert!(text.len() <= limit && !text.contains(&0), "{text:?}");
        super::escape(text);
    }
}

/// A BTF file.
///
/// # Panics
///
/// Where an answer leaves the file's own numbers. That it ends at all is libFuzzer's to see.
pub fn kernel_types(input: &[u8]) {
    const NAMES: &[&str] = &["outer", "inner", "colour", "btf_trace_paint"];
    let Ok(btf) = Btf::parse(input.to_vec(), NAMES) else {
        return;
    };
    for path in ["outer.a", "outer.i.x", "outer.n[2].x", "inner.nobody"] {
        assert!(
            btf.offset(path).is_none_or(|at| at <= u32::MAX / 8),
            "{path}"
        );
        // An array may stand at a place that is no whole byte; that it is one must not matter.
        let _: bool = btf.is_array(path);
    }
    let argument = btf.tracepoint_argument("paint", 0);
    assert!(argument.is_none_or(|name| name.len() < input.len()));
    assert_eq!(btf.tracepoint_argument("paint", u32::MAX), None);
    assert_eq!(btf.tracepoint_argument("nobody", 0), None);
    assert_eq!(btf.size("nobody"), None);
    let _: Option<u32> = btf.enum_value("colour", "BLUE");
}
