//! The contract between the eBPF programs and user space.
//!
//! Layout rules: `repr(C)`, little-endian as the machine is, sizes a multiple of 8, padding named
//! and written as zero, no pointer, no Rust `enum` or `bool` in a record: any bit pattern is valid
//! to read. Sizes and offsets are asserted at compile time, on both sides of the contract.
//!
//! The object and the agent are built as one binary, so [`ABI_VERSION`] differs only when a stale
//! object was embedded; user space then refuses it at start.

#![no_std]

pub mod counters;
pub mod event;
pub mod offsets;
pub mod settings;

pub use counters::DropReason;
pub use event::{DiskError, EventKind, Header, OomKill, PidCrossing, PidTrend, SlowWindow};
pub use offsets::KernelOffsets;
pub use settings::{DiskEntry, PidSettings, PidState};

/// Version of every layout in this crate together. Raised by any change of a field.
pub const ABI_VERSION: u16 = 7;

/// Asserts the size of a record and the offset of each named field.
macro_rules! layout {
    ($type:ty, $size:literal $(, $field:ident @ $offset:literal)* $(,)?) => {
        const _: () = assert!(core::mem::size_of::<$type>() == $size);
        const _: () = assert!(core::mem::size_of::<$type>() % 8 == 0);
        $(const _: () = assert!(core::mem::offset_of!($type, $field) == $offset);)*
    };
}
pub(crate) use layout;
