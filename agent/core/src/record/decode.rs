//! Bytes → [`Record`], or a [`DecodeError`].

use std::time::Duration;

use agent_common::event::{
    self as raw, ORDER_UNKNOWN, SCOPE_GLOBAL, SCOPE_MEMCG, SOURCE_EXACT, UID_UNKNOWN, VIA_EXIT,
    VIA_FENTRY,
};
use agent_common::settings::device_numbers;
use agent_common::{ABI_VERSION, EventKind, Header};
use zerocopy::{FromBytes, Immutable, KnownLayout};

use super::{
    MemcgLimit, NamespacePid, OomConstraint, OomScope, Record, RecordedKill, ScopeSource, Side, Via,
};
use crate::clock::BootNanos;
use crate::reading::{DiskError, DiskReport, SlowWindow};
use crate::units::{CgroupId, DeviceNumber, Pid};

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// It is shorter than its kind requires.
    #[error("record has {got} bytes, expected at least {need}")]
    Short {
        got: usize,
        /// Length that its kind requires.
        need: usize,
    },
    /// An eBPF object of another ABI wrote it.
    #[error("record has ABI {got}, expected {ABI_VERSION}; build agent and object from one tree")]
    Version { got: u16 },
}

/// Decodes one record. Unknown trailing bytes are ignored. Never panics.
pub fn decode(record: &[u8]) -> Result<Record, DecodeError> {
    let header: Header = prefix(record)?;
    if header.version != ABI_VERSION {
        return Err(DecodeError::Version {
            got: header.version,
        });
    }
    let at = BootNanos(header.time);
    Ok(match EventKind::from_raw(header.kind) {
        Some(EventKind::OomKill) => Record::OomKill(Box::new(oom_kill(at, &prefix(record)?))),
        Some(EventKind::PidCrossing) => {
            let body: raw::PidCrossing = prefix(record)?;
            Record::PidCrossing {
                at,
                value: body.value,
                side: side(body.state),
            }
        }
        Some(EventKind::PidTrend) => {
            let body: raw::PidTrend = prefix(record)?;
            Record::PidTrend {
                at,
                value: body.value,
            }
        }
        Some(EventKind::SlowWindow) => slow_window(at, &prefix(record)?),
        Some(EventKind::DiskError) => disk_error(at, &prefix(record)?),
        None => Record::Unknown { kind: header.kind },
    })
}

fn prefix<T: FromBytes + Immutable + KnownLayout>(record: &[u8]) -> Result<T, DecodeError> {
    T::read_from_prefix(record)
        .map(|(body, _)| body)
        .map_err(|_| DecodeError::Short {
            got: record.len(),
            need: size_of::<T>(),
        })
}

fn slow_window(at: BootNanos, body: &raw::SlowWindow) -> Record {
    Record::DiskReported {
        at: BootNanos(at.0.saturating_sub(body.ago_ns)),
        device: device(body.dev),
        report: DiskReport::SlowWindow(SlowWindow {
            judged: body.judged,
            slow: body.slow,
            length: Duration::from_nanos(body.window_ns),
            longest: Duration::from_nanos(body.max_ns),
        }),
    }
}

fn disk_error(at: BootNanos, body: &raw::DiskError) -> Record {
    Record::DiskReported {
        at,
        device: device(body.dev),
        report: DiskReport::Error(DiskError {
            write: body.op != 0,
            errno: i32::try_from(body.errno).unwrap_or(i32::MAX),
        }),
    }
}

fn device(number: u32) -> DeviceNumber {
    let (major, minor) = device_numbers(number);
    DeviceNumber { major, minor }
}

fn side(state: u32) -> Side {
    if state == 0 { Side::Under } else { Side::Over }
}

fn oom_kill(at: BootNanos, body: &raw::OomKill) -> RecordedKill {
    RecordedKill {
        at,
        victim: Pid(body.tgid),
        comm: text(&body.comm),
        uid: body.uid,
        uid_in_namespace: (body.uid_in_namespace != UID_UNKNOWN).then_some(body.uid_in_namespace),
        oom_score_adj: body.oom_score_adj,
        trigger: Pid(body.trigger_tgid),
        trigger_comm: text(&body.trigger_comm),
        trigger_cgroup: (body.cg_trigger != 0).then_some(CgroupId(body.cg_trigger)),
        cgroup: CgroupId(body.cg_memory),
        names: [
            text(&body.leaf),
            text(&body.parent),
            text(&body.grandparent),
        ],
        scope: match body.scope {
            SCOPE_GLOBAL => OomScope::Global,
            SCOPE_MEMCG => OomScope::Memcg(MemcgLimit {
                limiting: CgroupId(body.cg_limiting),
                usage_pages: body.limit_usage_pages,
                max_pages: body.limit_max_pages,
                tied: (body.cg_tied != 0).then_some(CgroupId(body.cg_tied)),
            }),
            _ => OomScope::Unknown,
        },
        source: if body.scope_source == SOURCE_EXACT {
            ScopeSource::Exact
        } else {
            ScopeSource::Inferred
        },
        constraint: constraint(body.constraint),
        order: (body.order != ORDER_UNKNOWN).then_some(body.order),
        via: match body.via {
            VIA_FENTRY => Via::Fentry,
            VIA_EXIT => Via::Exit,
            _ => Via::Task,
        },
        namespace: (body.ns_tgid != 0).then_some(NamespacePid {
            pid: Pid(body.ns_tgid),
            reference: CgroupId(body.cg_reference),
        }),
        group: (body.cg_group != 0).then_some(CgroupId(body.cg_group)),
        anon_pages: body.anon_pages,
        file_pages: body.file_pages,
        shmem_pages: body.shmem_pages,
    }
}

/// `enum oom_constraint` (`include/linux/oom.h`).
fn constraint(raw: u8) -> Option<OomConstraint> {
    match raw {
        0 => Some(OomConstraint::None),
        1 => Some(OomConstraint::Cpuset),
        2 => Some(OomConstraint::MemoryPolicy),
        3 => Some(OomConstraint::Memcg),
        _ => None,
    }
}

/// The bytes before the first NUL.
fn text(field: &[u8]) -> Vec<u8> {
    field.split(|b| *b == 0).next().unwrap_or_default().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_common::event::{CONSTRAINT_UNKNOWN, VIA_TASK};
    use zerocopy::{FromZeros, IntoBytes};

    const SDB: DeviceNumber = DeviceNumber {
        major: 8,
        minor: 16,
    };

    fn header<T>(kind: u16) -> Header {
        Header {
            version: ABI_VERSION,
            kind,
            size: u32::try_from(size_of::<T>()).unwrap(),
            time: 7,
            seq: 0,
            cpu: 1,
            pad: 0,
        }
    }

    fn kill() -> raw::OomKill {
        let mut kill = raw::OomKill::new_zeroed();
        kill.header = header::<raw::OomKill>(1);
        kill.tgid = 42;
        kill.comm[..5].copy_from_slice(b"a\nb\xff\0");
        kill.leaf = [b'x'; 96];
        kill.scope = SCOPE_MEMCG;
        kill.cg_limiting = 99;
        kill.constraint = 3;
        kill.via = VIA_EXIT;
        kill.order = -1;
        kill.uid_in_namespace = 1000;
        kill.cg_trigger = 12;
        kill
    }

    #[test]
    fn names_of_a_kill_are_not_escaped() {
        let Record::OomKill(decoded) = decode(kill().as_bytes()).unwrap() else {
            panic!("not a kill");
        };
        assert_eq!(decoded.victim, Pid(42));
        assert_eq!(decoded.comm, b"a\nb\xff", "escaped at display");
        assert_eq!(
            decoded.names[0], [b'x'; 96],
            "a name without a NUL ends with its field"
        );
        assert!(matches!(
            decoded.scope,
            OomScope::Memcg(MemcgLimit {
                limiting: CgroupId(99),
                ..
            })
        ));
    }

    #[test]
    fn unknown_fields_of_a_kill_are_none() {
        let fields = |change: &dyn Fn(&mut raw::OomKill)| {
            let mut kill = kill();
            change(&mut kill);
            let Record::OomKill(kill) = decode(kill.as_bytes()).unwrap() else {
                panic!("not a kill");
            };
            let (uid, cgroup) = (kill.uid_in_namespace, kill.trigger_cgroup);
            (kill.constraint, kill.order, uid, cgroup, kill.via)
        };
        let (constraint, cgroup) = (Some(OomConstraint::Memcg), Some(CgroupId(12)));
        let known = (constraint, Some(-1), Some(1000), cgroup, Via::Exit);
        assert_eq!(fields(&|_| ()), known);
        let unknown = fields(&|kill| {
            kill.constraint = CONSTRAINT_UNKNOWN;
            kill.order = ORDER_UNKNOWN;
            kill.uid_in_namespace = UID_UNKNOWN;
            kill.cg_trigger = 0;
            kill.via = VIA_TASK;
        });
        assert_eq!(unknown, (None, None, None, None, Via::Task));
    }

    #[test]
    fn the_position_of_a_victim_is_all_known_or_unknown() {
        let fields = |ns_tgid, cg_reference, cg_group| {
            let mut kill = kill();
            (kill.ns_tgid, kill.cg_reference, kill.cg_group) = (ns_tgid, cg_reference, cg_group);
            let Record::OomKill(kill) = decode(kill.as_bytes()).unwrap() else {
                panic!("not a kill");
            };
            (kill.namespace, kill.group)
        };
        let namespace = NamespacePid {
            pid: Pid(17),
            reference: CgroupId(5),
        };
        assert_eq!(fields(0, 0, 0), (None, None));
        assert_eq!(fields(17, 5, 9), (Some(namespace), Some(CgroupId(9))));
    }

    #[test]
    fn a_slow_window_is_dated_by_its_end() {
        let mut record = raw::SlowWindow::new_zeroed();
        record.header = header::<raw::SlowWindow>(20);
        record.header.time = 9_000_000_000;
        record.dev = (8 << 20) | 16;
        (record.judged, record.slow) = (6, 5);
        (record.window_ns, record.ago_ns, record.max_ns) = (2_000_000_000, 3_000_000_000, 40);
        let expected = Record::DiskReported {
            at: BootNanos(6_000_000_000),
            device: SDB,
            report: DiskReport::SlowWindow(SlowWindow {
                judged: 6,
                slow: 5,
                length: Duration::from_secs(2),
                longest: Duration::from_nanos(40),
            }),
        };
        assert_eq!(decode(record.as_bytes()), Ok(expected));
    }

    #[test]
    fn a_disk_error_has_its_operation_and_a_positive_number() {
        for (op, errno, write, expected) in [
            (0, 5, false, 5),
            (1, 61, true, 61),
            (1, u32::MAX, true, i32::MAX),
        ] {
            let mut record = raw::DiskError::new_zeroed();
            record.header = header::<raw::DiskError>(21);
            record.dev = (8 << 20) | 16;
            (record.op, record.errno) = (op, errno);
            let errno = expected;
            let expected = Record::DiskReported {
                at: BootNanos(7),
                device: SDB,
                report: DiskReport::Error(DiskError { write, errno }),
            };
            assert_eq!(decode(record.as_bytes()), Ok(expected));
        }
    }

    #[test]
    fn length_version_and_kind_are_checked() {
        let crossing = raw::PidCrossing {
            header: header::<raw::PidCrossing>(10),
            value: 900,
            state: 1,
            threshold: 900,
            pad: 0,
        };
        let whole = crossing.as_bytes();
        let longer = [whole, &[0xee; 8]].concat();
        let read = Ok(Record::PidCrossing {
            at: BootNanos(7),
            value: 900,
            side: Side::Over,
        });
        let mut unknown = whole.to_vec();
        unknown[2] = 77;
        let mut foreign = whole.to_vec();
        foreign[0] = 9;
        #[rustfmt::skip]
        let rows: [(&[u8], Result<Record, DecodeError>, &str); 6] = [
            (whole, read.clone(), "as written"),
            (&longer, read, "with unknown trailing fields"),
            (&whole[..47], Err(DecodeError::Short { got: 47, need: 48 }), "one byte short"),
            (&[], Err(DecodeError::Short { got: 0, need: 32 }), "empty"),
            (&unknown, Ok(Record::Unknown { kind: 77 }), "a kind of a newer object"),
            (&foreign, Err(DecodeError::Version { got: 9 }), "another ABI"),
        ];
        for (record, expected, why) in rows {
            assert_eq!(decode(record), expected, "{why}");
        }
    }
}
