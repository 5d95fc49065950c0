//! One record of `/dev/kmsg` → one line about an OOM kill.
//!
//! Process names (at most 15 bytes) and cgroup names (any bytes except `/` and NUL, any number of
//! levels) are untrusted. The kernel writes keys in a fixed order, so text before the first name
//! and after the last one cannot be forged. The rest is parsed so that a forged name can only
//! misname a cgroup or process of the same tenant.

use super::super::OomConstraint;
use crate::units::{Bytes, Pid};

/// Bytes read of a record: `PRINTK_MESSAGE_MAX` is 2 KiB, and an escaped byte takes four.
const MOST: usize = 8192;

/// `TASK_COMM_LEN` without the NUL.
const COMM: usize = 15;

/// The lines that `mm/oom_kill.c` prints for a kill, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum KillLine {
    /// `NAME invoked oom-killer: …`.
    Invoked(Invoked),
    /// `oom-kill:constraint=…`. Rate-limited, with the line above, to ten in 5 s.
    Summary(Summary),
    /// `… Killed process N (NAME) …`. Never rate-limited.
    Killed(Killed),
    /// `… OOM victim N (NAME) is already exiting …`: no process was killed.
    Exiting,
    /// `Tasks in PATH are going to be killed …`: the rest of the group follows.
    Group(Vec<u8>),
}

/// The process whose allocation failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Invoked {
    pub(super) comm: Vec<u8>,
    /// -1 for sysrq.
    pub(super) order: Option<i32>,
}

/// Scope of the kill, and the victim's cgroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Summary {
    pub(super) constraint: OomConstraint,
    /// `oom_memcg`; `None` if absent or ambiguous.
    pub(super) limiting: Option<Vec<u8>>,
    /// `task_memcg`; `None` if absent or ambiguous.
    pub(super) cgroup: Option<Vec<u8>>,
    /// `None` if the line was cut.
    pub(super) victim: Option<Victim>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Victim {
    pub(super) pid: Pid,
    pub(super) comm: Vec<u8>,
    pub(super) uid: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Killed {
    pub(super) pid: Pid,
    pub(super) comm: Vec<u8>,
    pub(super) uid: Option<u32>,
    /// Anonymous, file, shared.
    pub(super) resident: Option<[Bytes; 3]>,
    /// Whether the limit of a memory cgroup was the cause.
    pub(super) memcg: bool,
}

pub(super) struct KmsgRecord<'a> {
    /// Microseconds on printk's clock.
    pub(super) usec: u64,
    text: &'a [u8],
}

/// Parses `prio,seq,usec,flags[,…];text\n[ KEY=value\n]…`. `None` for facility 1 and above, which
/// any process can write, and for a continuation (flag `c`), which can begin with an untrusted
/// name.
pub(super) fn record(bytes: &[u8]) -> Option<KmsgRecord<'_>> {
    let bytes = bytes.get(..MOST).unwrap_or(bytes);
    let at = bytes.iter().position(|&b| b == b';')?;
    let (head, text) = (bytes.get(..at)?, bytes.get(at + 1..)?);
    let mut fields = head.split(|&b| b == b',');
    let prio: u64 = number(fields.next()?)?;
    let _seq: u64 = number(fields.next()?)?;
    let usec = number(fields.next()?)?;
    if prio >> 3 != 0 || fields.next()? != b"-" {
        return None;
    }
    let text = text.split(|&b| b == b'\n').next()?;
    Some(KmsgRecord { usec, text })
}

impl KmsgRecord<'_> {
    pub(super) fn line(&self) -> Option<KillLine> {
        let text = unescape(self.text);
        summary(&text)
            .map(KillLine::Summary)
            .or_else(|| killed(&text))
            .or_else(|| group(&text))
            .or_else(|| invoked(&text).map(KillLine::Invoked))
    }
}

/// Replaces `\xNN` by its byte. The kernel escapes every backslash, so this is unambiguous.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        let code = match after {
            [b'x', high, low, ..] if first == b'\\' => hex(*high).zip(hex(*low)),
            _ => None,
        };
        let (byte, next) = match code {
            Some((high, low)) => (high << 4 | low, after.get(3..).unwrap_or_default()),
            None => (first, after),
        };
        out.push(byte);
        rest = next;
    }
    out
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit)
        .to_digit(16)
        .and_then(|d| u8::try_from(d).ok())
}

/// `NAME invoked oom-killer: gfp_mask=…, order=N, oom_score_adj=N`.
fn invoked(text: &[u8]) -> Option<Invoked> {
    const KEY: &[u8] = b" invoked oom-killer: gfp_mask=";
    let at = find(text, KEY).filter(|&at| at <= COMM)?;
    let order = after(text.get(at + KEY.len()..)?, b", order=");
    Some(Invoked {
        comm: text.get(..at)?.to_vec(),
        order: order.and_then(|text| number(digits(text))),
    })
}

fn summary(text: &[u8]) -> Option<Summary> {
    let rest = text.strip_prefix(b"oom-kill:constraint=")?;
    let (constraint, rest) = [
        (&b"CONSTRAINT_NONE,"[..], OomConstraint::None),
        (b"CONSTRAINT_CPUSET,", OomConstraint::Cpuset),
        (b"CONSTRAINT_MEMORY_POLICY,", OomConstraint::MemoryPolicy),
        (b"CONSTRAINT_MEMCG,", OomConstraint::Memcg),
    ]
    .into_iter()
    .find_map(|(name, constraint)| Some((constraint, rest.strip_prefix(name)?)))?;
    let (body, victim) = match victim(rest) {
        Some((body, victim)) => (body, Some(victim)),
        None => (&b""[..], None),
    };
    let (limiting, cgroup) = cgroups(body, constraint);
    Some(Summary {
        constraint,
        limiting,
        cgroup,
        victim,
    })
}

/// Parses `BODY,task=NAME,pid=N,uid=N` from the right. A process name with `,task=` in it is
/// ambiguous with the end of a cgroup name. The shorter path is used: it is correct, or cut within
/// its last name.
fn victim(text: &[u8]) -> Option<(&[u8], Victim)> {
    let (text, uid) = rsplit(text, b",uid=")?;
    let (text, pid) = rsplit(text, b",pid=")?;
    let key = b",task=";
    let first = text.len().saturating_sub(COMM + key.len());
    let at = first + find(text.get(first..)?, key)?;
    let victim = Victim {
        pid: Pid(number(pid)?),
        comm: text.get(at + key.len()..)?.to_vec(),
        uid: number(uid)?,
    };
    Some((text.get(..at)?, victim))
}

/// `nodemask=…,cpuset=NAME,mems_allowed=…` and then `,oom_memcg=/…,task_memcg=/…` or
/// `,global_oom,task_memcg=/…`.
///
/// The first of these keys is genuine, because the only name before it cannot contain a `/`. The
/// victim is in the limiting cgroup or below it, so a forged `,task_memcg=` is accepted only if it
/// names a cgroup below the same one, which belongs to the same tenant.
fn cgroups(body: &[u8], constraint: OomConstraint) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
    const LIMITED: &[u8] = b",oom_memcg=/";
    const GLOBAL: &[u8] = b",global_oom,task_memcg=/";
    const TASK: &[u8] = b",task_memcg=/";
    let path = |at: usize, key: &[u8]| body.get(at + key.len() - 1..);
    let limited = find(body, LIMITED);
    let global = find(body, GLOBAL);
    match (limited, global) {
        (limited, Some(at)) if limited.is_none_or(|limited| at < limited) => {
            let cgroup = path(at, GLOBAL).filter(|_| constraint != OomConstraint::Memcg);
            (None, cgroup.map(<[u8]>::to_vec))
        }
        (Some(at), _) if constraint == OomConstraint::Memcg => {
            let both = path(at, LIMITED).unwrap_or_default();
            let mut from = 0;
            while let Some(found) = both.get(from..).and_then(|rest| find(rest, TASK)) {
                let at = from + found;
                let (limiting, task) = both.split_at(at);
                let task = task.get(TASK.len() - 1..).unwrap_or_default();
                if is_within(task, limiting) {
                    return (Some(limiting.to_vec()), Some(task.to_vec()));
                }
                from = at + TASK.len();
            }
            (None, None)
        }
        _ => (None, None),
    }
}

/// Whether `path` is `above` or below it.
fn is_within(path: &[u8], above: &[u8]) -> bool {
    above == b"/"
        || path
            .strip_prefix(above)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// `[Memory cgroup o|O]ut of memory[ (oom_kill_allocating_task)]: Killed process N (NAME)
/// total-vm:NkB, anon-rss:NkB, file-rss:NkB, shmem-rss:NkB, UID:N pgtables:NkB oom_score_adj:N`.
fn killed(text: &[u8]) -> Option<KillLine> {
    let (memcg, rest) = [
        (&b"Memory cgroup out of memory: "[..], true),
        (b"Out of memory: ", false),
        (b"Out of memory (oom_kill_allocating_task): ", false),
    ]
    .into_iter()
    .find_map(|(words, memcg)| Some((memcg, text.strip_prefix(words)?)))?;
    if rest.starts_with(b"OOM victim ") {
        return Some(KillLine::Exiting);
    }
    let rest = rest.strip_prefix(b"Killed process ")?;
    let pid = digits(rest);
    let rest = rest.get(pid.len()..)?.strip_prefix(b" (")?;
    // Only numbers follow the name, so the last match is genuine.
    let (comm, figures) = rsplit(rest, b") total-vm:")?;
    if comm.len() > COMM {
        return None;
    }
    let kib = |key: &[u8]| {
        let n = digits(after(figures, key)?);
        number(n).map(Bytes::from_kib)
    };
    let resident = (|| Some([kib(b"anon-rss:")?, kib(b"file-rss:")?, kib(b"shmem-rss:")?]))();
    let uid = after(figures, b"UID:");
    Some(KillLine::Killed(Killed {
        pid: Pid(number(pid)?),
        comm: comm.to_vec(),
        uid: uid.and_then(|text| number(digits(text))),
        resident,
        memcg,
    }))
}

fn group(text: &[u8]) -> Option<KillLine> {
    let rest = text.strip_prefix(b"Tasks in ")?;
    let path = rest.strip_suffix(b" are going to be killed due to memory.oom.group set")?;
    path.starts_with(b"/")
        .then(|| KillLine::Group(path.to_vec()))
}

fn find(text: &[u8], words: &[u8]) -> Option<usize> {
    text.windows(words.len()).position(|part| part == words)
}

/// The text after the first `key`.
fn after<'a>(text: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    text.get(find(text, key)? + key.len()..)
}

/// The text before and after the last `key`.
fn rsplit<'a>(text: &'a [u8], key: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = text.windows(key.len()).rposition(|part| part == key)?;
    Some((text.get(..at)?, text.get(at + key.len()..)?))
}

/// The leading digits of `text`, with a minus sign.
fn digits(text: &[u8]) -> &[u8] {
    let end = text
        .iter()
        .enumerate()
        .position(|(at, b)| !(b.is_ascii_digit() || (at == 0 && *b == b'-')));
    end.and_then(|end| text.get(..end)).unwrap_or(text)
}

/// A decimal number and nothing else.
fn number<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    if text.first() == Some(&b'+') {
        return None;
    }
    str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests;
