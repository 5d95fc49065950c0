//! Attaches the wanted programs: one of the hooks for OOM kills, the pair for their scope, and the
//! others.

use agent_common::KernelOffsets;
use aya::programs::{BtfTracePoint, FEntry, FExit, Program, ProgramError, RawTracePoint};
use aya::{Btf, BtfError, Ebpf};

use super::probe::{Hook, KillHook, Probe, SCOPE};
use super::resolve::missing;
use super::support::{Missing, ProbeState, Support};
use super::wanted::Wanted;

/// Number of bytes that are kept of the end of a verifier log, which names the cause.
const VERIFIER_LOG_TAIL: usize = 2048;

/// Attaches the wanted programs and returns the state of every probe.
pub(super) fn all(programs: &mut Ebpf, offsets: &KernelOffsets, wanted: Wanted) -> Support {
    let mut attacher = Attacher {
        programs,
        offsets,
        types: None,
    };
    let mut support = Support::none(&Missing::TurnedOff);
    let mut group = |support: &mut Support, wanted: bool, probes: &[Probe]| {
        if wanted {
            support.set(probes, &attacher.together(probes));
        }
    };
    if let Some(best) = wanted.kills {
        group(&mut support, wanted.scope, SCOPE);
        for hook in KillHook::ALL.into_iter().filter(|hook| best <= *hook) {
            if support.kills().is_some() {
                support.set(hook.probes(), &ProbeState::NotNeeded);
            } else if hook == KillHook::Exit && !by_pid(offsets, wanted) {
                // The tracepoint is the same, so loading would fail for the same reason.
                let refused = support.state(Probe::OomVictim).clone();
                support.set(hook.probes(), &refused);
            } else {
                group(&mut support, true, hook.probes());
            }
        }
    }
    group(&mut support, wanted.pids, &[Probe::PidFork]);
    group(&mut support, wanted.disks, &[Probe::DiskComplete]);
    support
}

/// Returns `true` if kills may have to be reported by pid, because no task is available or wanted.
pub(super) fn by_pid(offsets: &KernelOffsets, wanted: Wanted) -> bool {
    match wanted.kills {
        None => false,
        Some(KillHook::Task) => missing(offsets, Probe::OomVictim).is_some(),
        Some(KillHook::Fentry | KillHook::Exit) => true,
    }
}

struct Attacher<'a> {
    programs: &'a mut Ebpf,
    offsets: &'a KernelOffsets,
    /// The kernel's types for aya, needed for functions and typed tracepoints. They are read on
    /// first use, because they take 18 MiB.
    types: Option<Result<Btf, BtfError>>,
}

impl Attacher<'_> {
    /// Attaches all of `probes` in order, or none.
    fn together(&mut self, probes: &[Probe]) -> ProbeState {
        let missing = probes.iter().find_map(|p| missing(self.offsets, *p));
        if let Some(missing) = missing {
            return ProbeState::Missing(missing);
        }
        for probe in probes {
            if let Err(why) = self.attach(*probe) {
                for probe in probes {
                    self.unload(*probe);
                }
                return ProbeState::Missing(Missing::Refused { why });
            }
        }
        ProbeState::Attached
    }

    fn attach(&mut self, probe: Probe) -> Result<(), String> {
        let program = self
            .programs
            .program_mut(probe.program())
            .ok_or_else(|| format!("the eBPF object has no program {}", probe.program()))?;
        let types = &mut self.types;
        macro_rules! attach_typed {
            ($type:ty, $name:expr) => {{
                let program = <&mut $type>::try_from(program).map_err(|err| explain(&err))?;
                let loaded = program.load($name, kernel_types(types)?);
                loaded.map_err(|err| load_error(&err))?;
                program.attach().map(drop)
            }};
        }
        match probe.hook() {
            Hook::Tracepoint(name) => {
                let program = <&mut RawTracePoint>::try_from(program);
                let program = program.map_err(|err| explain(&err))?;
                program.load().map_err(|err| load_error(&err))?;
                program.attach(name).map(drop)
            }
            Hook::Typed(name) => attach_typed!(BtfTracePoint, name),
            Hook::Entry(function) => attach_typed!(FEntry, function),
            Hook::Return(function) => attach_typed!(FExit, function),
        }
        .map_err(|err| format!("attach: {}", explain(&err)))
    }

    /// Detaches and unloads a program. Does nothing if it is not loaded.
    fn unload(&mut self, probe: Probe) {
        let Some(program) = self.programs.program_mut(probe.program()) else {
            return;
        };
        let unloaded = match program {
            Program::RawTracePoint(program) => program.unload(),
            Program::BtfTracePoint(program) => program.unload(),
            Program::FEntry(program) => program.unload(),
            Program::FExit(program) => program.unload(),
            _ => Ok(()),
        };
        drop(unloaded);
    }
}

fn kernel_types(types: &mut Option<Result<Btf, BtfError>>) -> Result<&Btf, String> {
    let types = types.get_or_insert_with(Btf::from_sys_fs);
    types.as_ref().map_err(|err| explain(err))
}

/// Returns the reason why a program was not loaded, with the end of the verifier log.
fn load_error(err: &ProgramError) -> String {
    let ProgramError::LoadError {
        io_error,
        verifier_log,
    } = err
    else {
        return format!("load: {}", explain(err));
    };
    let log = verifier_log.to_string();
    let tail = log
        .char_indices()
        .rev()
        .nth(VERIFIER_LOG_TAIL)
        .map_or(0, |(at, _)| at);
    match log.get(tail..).unwrap_or_default().trim() {
        "" => format!("load: {io_error}"),
        tail => format!("load: {io_error}: {tail}"),
    }
}

/// Formats an error and its causes in one line.
pub(super) fn explain(err: &dyn std::error::Error) -> String {
    let mut text = err.to_string();
    let mut cause = err.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    if text.contains("os error 1)") {
        text.push_str("; grant CAP_BPF and CAP_PERFMON, or set kernel.tier: files");
    }
    text
}
