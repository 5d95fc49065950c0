//! Loads and attaches the programs of the object, and provides the maps that user space writes.

use std::io;
use std::path::Path;
use std::time::Duration;

use agent_common::{DiskEntry, DropReason, KernelOffsets, PidSettings, PidState};
use aya::maps::{Array, Map, MapData, PerCpuArray, RingBuf};
use aya::{Ebpf, EbpfLoader};
use nodepulse_core::units::DeviceNumber;
use zerocopy::IntoBytes;

use super::attach::{self, explain};
use super::disk_maps::DiskMaps;
use super::error::KernelError;
use super::probe::Probe;
use super::resolve::resolve;
use super::support::{Missing, Support};
use super::wanted::Wanted;

pub const BTF: &str = "/sys/kernel/btf/vmlinux";

type RawBytes<const N: usize> = [u8; N];
type PidSettingsBytes = RawBytes<{ size_of::<PidSettings>() }>;
type PidStateBytes = RawBytes<{ size_of::<PidState>() }>;

/// The loaded programs, and the rings to read.
pub struct LoadedKernel {
    /// Keeps the programs attached. Dropping it detaches all of them.
    pub kernel: Kernel,
    pub crit: RingBuf<MapData>,
    /// The ring for all records other than OOM kills.
    pub bulk: RingBuf<MapData>,
    /// Log of the probes, if they were built with it.
    #[cfg(feature = "ebpf-log")]
    pub log: Option<aya_log::EbpfLogger<super::log::TracingLogger>>,
}

pub struct Kernel {
    /// The programs, which are detached on drop.
    programs: Ebpf,
    support: Support,
    pid_settings: Array<MapData, PidSettingsBytes>,
    pid_state: Array<MapData, PidStateBytes>,
    disks: DiskMaps,
    dropped: PerCpuArray<MapData, u64>,
}

/// Loads the embedded object and attaches the wanted programs that this kernel supports.
///
/// Call it before anything long-lived is allocated and before the runtime starts: aya parses all of
/// the kernel's BTF, which temporarily takes about 20 MiB. Fails only if not even the maps can be
/// created. A probe that cannot be attached is reported in [`Kernel::support`].
pub fn load(object: &[u8], wanted: &Wanted) -> Result<LoadedKernel, Missing> {
    let offsets = resolve(Path::new(BTF))?;
    let mut loader = EbpfLoader::new();
    loader
        .btf(None)
        .override_global("OFFSETS", offsets.as_bytes(), true);
    for map in idle_maps(&offsets, *wanted) {
        loader.map_max_entries(map, 1);
    }
    let mut programs = loader
        .load(object)
        .map_err(|err| Missing::Refused { why: explain(&err) })?;
    let support = attach::all(&mut programs, &offsets, *wanted);
    open_maps(programs, support).map_err(|err| Missing::Refused { why: explain(&err) })
}

/// Returns the maps whose programs will not run, which are created with one entry.
fn idle_maps(offsets: &KernelOffsets, wanted: Wanted) -> Vec<&'static str> {
    let idle = [
        ("VICTIMS", !attach::by_pid(offsets, wanted)),
        ("SCOPES", !wanted.scope || wanted.kills.is_none()),
        ("DISKS", !wanted.disks),
        ("SLOTS", !wanted.disks),
        ("QUEUES", !wanted.disks),
    ];
    let idle = idle.into_iter().filter(|(_, idle)| *idle);
    idle.map(|(map, _)| map).collect()
}

fn open_maps(mut programs: Ebpf, support: Support) -> Result<LoadedKernel, KernelError> {
    fn take<T>(programs: &mut Ebpf, name: &'static str) -> Result<T, KernelError>
    where
        T: TryFrom<Map, Error = aya::maps::MapError>,
    {
        let map = programs.take_map(name).ok_or(KernelError::NoMap(name))?;
        T::try_from(map).map_err(KernelError::of_map(name))
    }
    Ok(LoadedKernel {
        crit: take(&mut programs, "CRIT")?,
        bulk: take(&mut programs, "BULK")?,
        #[cfg(feature = "ebpf-log")]
        log: super::log::open(&mut programs),
        kernel: Kernel {
            support,
            pid_settings: take(&mut programs, "PID_SETTINGS")?,
            pid_state: take(&mut programs, "PID_STATE")?,
            disks: DiskMaps::new(take(&mut programs, "DISKS")?, take(&mut programs, "SLOTS")?),
            dropped: take(&mut programs, "DROPPED")?,
            programs,
        },
    })
}

impl std::fmt::Debug for LoadedKernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoadedKernel")
            .field("support", &self.kernel.support)
            .finish_non_exhaustive()
    }
}

impl Kernel {
    pub fn support(&self) -> &Support {
        &self.support
    }

    /// Sets the levels at which the fork probe wakes user space. The kernel may refuse the write,
    /// as 5.10 does after the capabilities are dropped; this applies to the other maps too.
    pub fn set_pid_settings(&mut self, settings: PidSettings) -> Result<(), KernelError> {
        let bytes: PidSettingsBytes = zerocopy::transmute!(settings);
        let set = self.pid_settings.set(0, bytes, 0);
        set.map_err(KernelError::of_map("PID_SETTINGS"))
    }

    /// Resets the state of the fork probe to below the low level. No probe observes freed pids:
    /// with lazy RCU the hook runs many seconds late.
    pub fn end_pid_state(&mut self) -> Result<(), KernelError> {
        let read = self.pid_state.get(&0, 0);
        let bytes = read.map_err(KernelError::of_map("PID_STATE"))?;
        let state = PidState {
            state: 0,
            ..zerocopy::transmute!(bytes)
        };
        let bytes: PidStateBytes = zerocopy::transmute!(state);
        let set = self.pid_state.set(0, bytes, 0);
        set.map_err(KernelError::of_map("PID_STATE"))
    }

    /// Watches `device`, or sets its limits and resets its counters. Fails if 256 are watched.
    pub fn watch_disk(
        &mut self,
        device: DeviceNumber,
        entry: DiskEntry,
    ) -> Result<(), KernelError> {
        self.disks.put(device, entry)
    }

    /// Sets the latency from which a judged request of `device` is slow. Keeps its counters.
    pub fn limit_disk(&mut self, device: DeviceNumber, slow_ns: u64) -> Result<(), KernelError> {
        match self.disks.get(device) {
            Some(entry) => self.disks.put(device, DiskEntry { slow_ns, ..entry }),
            None => Ok(()),
        }
    }

    pub fn forget_disk(&mut self, device: DeviceNumber) -> Result<(), KernelError> {
        self.disks.remove(device)
    }

    /// Returns the counters of `device`; `None` if it is not watched.
    pub fn disk(&self, device: DeviceNumber) -> Option<DiskEntry> {
        self.disks.get(device)
    }

    /// Returns the total time and the number of runs of each attached program; empty unless
    /// `kernel.bpf_stats_enabled` is set. Costs one system call per program.
    pub fn runs(&self) -> Vec<(Probe, Duration, u64)> {
        let run = |probe: Probe| {
            let info = self.programs.program(probe.program())?.info().ok()?;
            (info.run_count() > 0).then(|| (probe, info.run_time(), info.run_count()))
        };
        Probe::ALL.into_iter().filter_map(run).collect()
    }

    /// Returns the number of records lost since the programs were loaded, summed over the CPUs.
    pub fn losses(&self) -> Result<[(DropReason, u64); DropReason::ALL.len()], KernelError> {
        let mut losses = DropReason::ALL.map(|reason| (reason, 0));
        for (reason, sum) in &mut losses {
            let read = self.dropped.get(&reason.slot(), 0);
            let per_cpu = read.map_err(KernelError::of_map("DROPPED"))?;
            *sum = per_cpu.iter().sum();
        }
        Ok(losses)
    }
}

impl From<KernelError> for io::Error {
    fn from(err: KernelError) -> Self {
        Self::other(err)
    }
}
