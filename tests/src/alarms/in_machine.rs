//! Defines workloads that need the disks of a virtual machine, or all of its memory.

use std::fs::File;
use std::io;

use super::stalls;
use super::unwell::meminfo;
use super::{Expected, Form, Prepared, Workload, workload};
use crate::provoke::ioctl::{nvme_log_page, nvme_unknown_command};
use crate::provoke::swap::Swap;
use crate::vm::disk;

const MIB: u64 = 1 << 20;
/// Memory of the container, which is limited only later.
const ALLOCATED: u64 = 192 * MIB;
const LIMIT: u64 = 64 * MIB;

pub(crate) fn workloads() -> Vec<Workload> {
    let mut all = vec![passthrough(), swapped_out()];
    all.extend(stalls::in_machine());
    all
}

/// Reads the health of the disk below nodefs, and requests unsupported pages and commands, as SMART
/// tools do.
fn passthrough() -> Workload {
    const HEALTH: u32 = 2;
    const UNKNOWN: u32 = 0xdf;
    const TIMES: u32 = 200;
    let (form, expected) = (Form::Short, Expected::NoAlarm);
    workload("smart-passthrough", form, expected, |_| {
        let node = File::open(disk("node")?)?;
        Ok(Prepared::new(move |_| {
            let mut failed = 0;
            for _ in 0..TIMES {
                let status = nvme_log_page(&node, HEALTH)?;
                if status != 0 {
                    return Err(io::Error::other(format!("no health: status {status:#x}")));
                }
                let statuses = [nvme_log_page(&node, UNKNOWN)?, nvme_unknown_command(&node)?];
                failed += statuses.into_iter().filter(|status| *status != 0).count();
            }
            if failed != 2 * TIMES as usize {
                return Err(io::Error::other(format!("only {failed} commands failed")));
            }
            Ok(format!("{TIMES} commands succeeded, {failed} failed"))
        }))
    })
}

/// Limits a container that does not use its memory to less, so that the rest is swapped out.
fn swapped_out() -> Workload {
    let (form, expected) = (Form::Short, Expected::NoAlarm);
    workload("swap-out-cold-memory", form, expected, |_| {
        let swap = Swap::on(&disk("swap")?)?;
        Ok(Prepared::new(move |control| {
            let site = control.site();
            let free = meminfo("SwapFree:")?;
            let cold = site
                .provoke
                .allocate_in(&site.container("other"), ALLOCATED)?;
            site.limit("other", LIMIT)?;
            let swapped_out = free.saturating_sub(meminfo("SwapFree:")?);
            if swapped_out < (ALLOCATED - LIMIT) / 2 {
                let why = format!("only {} MiB were swapped out", swapped_out / MIB);
                return Err(io::Error::other(why));
            }
            std::thread::park_timeout(site.pace.load);
            drop(cold);
            drop(swap);
            Ok(format!("{} MiB swapped out", swapped_out / MIB))
        }))
    })
}
