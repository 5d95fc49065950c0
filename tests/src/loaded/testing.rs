//! Loads the object with the programs for tests, which are attached one by one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_common::{DiskEntry, DropReason, PidSettings};
use aya::maps::{Array, Map, MapData, MapError, PerCpuArray, RingBuf};
use aya::programs::raw_trace_point::RawTracePointLinkId;
use aya::programs::tp_btf::BtfTracePointLinkId;
use aya::programs::{BtfTracePoint, Program, ProgramInfo, RawTracePoint};
use aya::{Btf, Ebpf, EbpfLoader};
use nix::libc;
use nodepulse_core::units::DeviceNumber;
use nodepulse_linux::kernel::Probe;
use nodepulse_linux::kernel::disk_maps::DiskMaps;
use nodepulse_linux::kernel::loader::BTF;
use nodepulse_linux::kernel::probe::Hook;
use nodepulse_linux::kernel::resolve::resolve;
use zerocopy::IntoBytes as _;

/// Path below the target directory.
const OBJECT: &str = "ebpf-testing/bpfel-unknown-none/release/agent-ebpf";

/// Program that answers each `getppid` of this process with a record.
pub const FLOOD: &str = "flood";
/// Program that does nothing at each fork.
pub const EMPTY_FORK: &str = "empty_fork";
/// Program that does nothing at each completed request.
pub const EMPTY_COMPLETE: &str = "empty_complete";

/// Loaded programs, none of which is attached at first.
#[derive(Debug)]
pub struct Testing {
    programs: Ebpf,
    types: Btf,
    disks: Option<DiskMaps>,
}

/// An attached program, for [`Testing::detach`].
#[derive(Debug)]
pub struct Link {
    program: &'static str,
    id: LinkId,
}

#[derive(Debug)]
enum LinkId {
    Raw(RawTracePointLinkId),
    Typed(BtfTracePointLinkId),
}

/// The kernel's statistics of a program.
#[derive(Debug, Clone, Copy)]
pub struct Runs {
    /// Number of runs.
    pub count: u64,
    /// Sum of their durations.
    pub time: Duration,
}

impl Testing {
    /// Loads the object of `cargo xtask build-ebpf --features testing`.
    pub fn load() -> io::Result<Self> {
        let object = fs::read(object()?)?;
        let offsets = resolve(Path::new(BTF)).map_err(|why| io::Error::other(why.to_string()))?;
        let programs = EbpfLoader::new()
            .btf(None)
            .override_global("OFFSETS", offsets.as_bytes(), true)
            .override_global("FLOOD_TGID", &std::process::id(), true)
            .override_global("FLOOD_CALL", &libc::SYS_getppid.cast_unsigned(), true)
            .load(&object)
            .map_err(io::Error::other)?;
        let types = Btf::from_sys_fs().map_err(io::Error::other)?;
        Ok(Self {
            programs,
            types,
            disks: None,
        })
    }

    pub fn attach(&mut self, program: &'static str, tracepoint: &str) -> io::Result<Link> {
        let found = program_mut(&mut self.programs, program)?;
        let fresh = found.fd().is_err();
        let id = if let Program::BtfTracePoint(_) = found {
            let typed: &mut BtfTracePoint = found.try_into().map_err(io::Error::other)?;
            if fresh {
                typed
                    .load(tracepoint, &self.types)
                    .map_err(io::Error::other)?;
            }
            typed.attach().map(LinkId::Typed)
        } else {
            let raw: &mut RawTracePoint = found.try_into().map_err(io::Error::other)?;
            if fresh {
                raw.load().map_err(io::Error::other)?;
            }
            raw.attach(tracepoint).map(LinkId::Raw)
        };
        let id = id.map_err(io::Error::other)?;
        Ok(Link { program, id })
    }

    /// Attaches a probe of the agent to its tracepoint.
    pub fn attach_probe(&mut self, probe: Probe) -> io::Result<Link> {
        self.attach(probe.program(), tracepoint(probe)?)
    }

    pub fn detach(&mut self, link: Link) -> io::Result<()> {
        let program = program_mut(&mut self.programs, link.program)?;
        match link.id {
            LinkId::Raw(id) => {
                let raw: &mut RawTracePoint = program.try_into().map_err(io::Error::other)?;
                raw.detach(id)
            }
            LinkId::Typed(id) => {
                let typed: &mut BtfTracePoint = program.try_into().map_err(io::Error::other)?;
                typed.detach(id)
            }
        }
        .map_err(io::Error::other)
    }

    /// Returns the statistics of a program that was attached at least once.
    pub fn runs(&mut self, program: &'static str) -> io::Result<Runs> {
        let program = program_mut(&mut self.programs, program)?;
        let info: ProgramInfo = program.info().map_err(io::Error::other)?;
        Ok(Runs {
            count: info.run_count(),
            time: info.run_time(),
        })
    }

    /// Takes a ring, which must be kept until everything is attached: programs that are loaded
    /// later refer to it by its descriptor.
    pub fn ring(&mut self, name: &'static str) -> io::Result<RingBuf<MapData>> {
        self.map(name)
    }

    /// Takes the counters of losses, which must be kept like a ring.
    pub fn losses(&mut self) -> io::Result<Losses> {
        self.map("DROPPED").map(Losses)
    }

    pub fn set_pid_settings(&mut self, settings: PidSettings) -> io::Result<()> {
        let map = self.programs.map_mut("PID_SETTINGS");
        let map = map.ok_or(io::ErrorKind::NotFound)?;
        let mut map: Array<_, [u8; size_of::<PidSettings>()]> =
            map.try_into().map_err(io::Error::other)?;
        let bytes: [u8; size_of::<PidSettings>()] = zerocopy::transmute!(settings);
        map.set(0, bytes, 0).map_err(io::Error::other)
    }

    /// Makes the completion probe watch a disk.
    pub fn watch_disk(&mut self, device: DeviceNumber, entry: DiskEntry) -> io::Result<()> {
        let mut disks = match self.disks.take() {
            Some(disks) => disks,
            None => DiskMaps::new(self.map("DISKS")?, self.map("SLOTS")?),
        };
        let put = disks.put(device, entry);
        self.disks = Some(disks);
        put.map_err(io::Error::other)
    }

    fn map<T: TryFrom<Map, Error = MapError>>(&mut self, name: &'static str) -> io::Result<T> {
        let map = self.programs.take_map(name);
        let map = map.ok_or_else(|| io::Error::other(format!("no map {name}")))?;
        T::try_from(map).map_err(io::Error::other)
    }
}

fn program_mut<'a>(programs: &'a mut Ebpf, name: &str) -> io::Result<&'a mut Program> {
    let program = programs.program_mut(name);
    program.ok_or_else(|| io::Error::other(format!("no program {name}")))
}

pub struct Losses(PerCpuArray<MapData, u64>);

impl Losses {
    /// Returns the sum over all CPUs.
    pub fn by(&self, reason: DropReason) -> io::Result<u64> {
        let each = self.0.get(&reason.slot(), 0).map_err(io::Error::other)?;
        Ok(each.iter().sum())
    }
}

/// Finds the object in the target directory of the running program.
fn object() -> io::Result<PathBuf> {
    let program = std::env::current_exe()?;
    let found = program
        .ancestors()
        .map(|dir| dir.join(OBJECT))
        .find(|file| file.is_file());
    found.ok_or_else(|| {
        io::Error::other(format!(
            "no {OBJECT} in the target directory: run `cargo xtask build-ebpf --features testing`"
        ))
    })
}

pub fn tracepoint(probe: Probe) -> io::Result<&'static str> {
    match probe.hook() {
        Hook::Tracepoint(name) | Hook::Typed(name) => Ok(name),
        Hook::Entry(_) | Hook::Return(_) => Err(io::Error::other("no tracepoint")),
    }
}

#[cfg(test)]
mod tests {
    use nodepulse_linux::kernel::object;

    use super::*;

    #[test]
    fn the_shipped_object_has_no_test_programs() {
        let shipped = object::embedded().expect("the tests are built with the eBPF object");
        let names = |name: &str| {
            let name = format!("\0{name}\0");
            shipped.windows(name.len()).any(|at| at == name.as_bytes())
        };
        assert!(names("pid_fork"), "names of programs are found this way");
        for testing in [FLOOD, EMPTY_FORK, EMPTY_COMPLETE] {
            assert!(!names(testing), "{testing}");
        }
    }
}
