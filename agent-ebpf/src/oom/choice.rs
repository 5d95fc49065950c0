//! The part of a kill's record that is known only while the kernel chooses a victim, as a map keeps
//! it.

use agent_common::event::{COMM_LEN, OomKill};

/// The part of an [`OomKill`] that cannot be read when the victim exits. The same fields.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Choice {
    pub(super) time: u64,
    pub(super) cg_limiting: u64,
    pub(super) cg_tied: u64,
    pub(super) cg_trigger: u64,
    pub(super) limit_usage_pages: u64,
    pub(super) limit_max_pages: u64,
    pub(super) total_pages: u64,
    pub(super) trigger_tgid: u32,
    pub(super) order: i32,
    pub(super) trigger_comm: [u8; COMM_LEN],
    pub(super) scope: u8,
    pub(super) scope_source: u8,
    pub(super) constraint: u8,
    /// Always zero: no byte of a map value may stay unwritten.
    pub(super) pad: [u8; 5],
}

impl Choice {
    /// Copies it to the record.
    #[inline(always)]
    pub fn put(&self, record: &mut OomKill) {
        record.header.time = self.time;
        record.cg_limiting = self.cg_limiting;
        record.cg_tied = self.cg_tied;
        record.cg_trigger = self.cg_trigger;
        record.limit_usage_pages = self.limit_usage_pages;
        record.limit_max_pages = self.limit_max_pages;
        record.total_pages = self.total_pages;
        record.trigger_tgid = self.trigger_tgid;
        record.order = self.order;
        record.trigger_comm = self.trigger_comm;
        record.scope = self.scope;
        record.scope_source = self.scope_source;
        record.constraint = self.constraint;
    }
}
