//! Parses the whole message of a kill's Event.

use std::ops::RangeInclusive;

use super::sizes::{CONTAINER, LEFT, MIB, MORE, Neighbour, POD};
use super::stage::HOG;
use crate::pod_kills::IN_USE;

use super::{Combination, LimitOf, Outcome, Qos};

/// The expected contents of a message.
#[derive(Debug)]
pub struct Facts<'a> {
    pub combination: Combination,
    /// The limit of all pods, in bytes.
    pub all_pods: u64,
    /// The process of the other container.
    pub proxy: u32,
    /// The process that was in the container before.
    pub helper: u32,
    /// The helper and the other processes of its container that allocate nothing more.
    pub group: Vec<u32>,
    /// Number of kills that the kernel has counted in the container.
    pub kills: u64,
    pub neighbours: &'a [Neighbour],
}

/// The unread rest of a message.
struct Reader<'a> {
    whole: &'a str,
    rest: &'a str,
}

/// Bytes that are counted in several places, or late.
const SLACK: u64 = 6 * MIB;
/// Maximum number of victims that a message names.
const NAMED: usize = 5;
/// Bytes of the program of a process itself.
const PROGRAM: u64 = 12 * MIB;

impl Facts<'_> {
    /// Panics unless the whole `message` is right.
    pub fn check(&self, message: &str) {
        assert!(message.len() <= 1024, "{} bytes", message.len());
        let mut reader = Reader {
            whole: message,
            rest: message,
        };
        self.first_sentence(&mut reader);
        self.advice(&mut reader);
        match self.combination.limit {
            LimitOf::Container | LimitOf::Pod => self.of_cgroup(&mut reader),
            LimitOf::AllPods | LimitOf::Node => self.of_pods(&mut reader),
        }
        if self.combination.outcome == Outcome::WholeContainer {
            self.killed_together(&mut reader);
        } else {
            self.victim(&mut reader);
        }
        assert_eq!(reader.rest, "", "{message}");
    }

    fn first_sentence(&self, reader: &mut Reader<'_>) {
        let killed_together = self.group.len() + 1;
        let (killed, subject, means) = match self.combination.outcome {
            Outcome::MainProcess => (
                "Container web was killed".to_owned(),
                "it",
                "; its main process died, so the container restarts",
            ),
            Outcome::ChildProcess => (
                "A process in container web was killed".to_owned(),
                "the container",
                "; the main process is alive, and the container continues to run",
            ),
            Outcome::WholeContainer => (
                format!("Container web was killed (at least {killed_together} processes together)"),
                "it",
                "; all its processes were killed as a group (memory.oom.group), so the container restarts",
            ),
        };
        reader.text(&format!("{killed} because "));
        let limit = match self.combination.limit {
            LimitOf::Container => {
                reader.text(&format!("{subject} reached its memory limit of "));
                Some(CONTAINER)
            }
            LimitOf::Pod => {
                reader.text("the pod reached its memory limit of ");
                Some(POD)
            }
            LimitOf::AllPods => {
                reader.text("all pods on the node together reached their memory limit of ");
                Some(self.all_pods)
            }
            LimitOf::Node => {
                reader.text("the node was out of memory");
                None
            }
        };
        if let Some(limit) = limit {
            reader.size(limit - rounding(limit)..=limit + rounding(limit));
            reader.text(" (");
            reader.size(limit - limit / 8..=limit + rounding(limit));
            reader.text(" in use)");
        }
        reader.text(means);
        // A node without memory may not get the pod's specification in time.
        let is_slow = self.combination.limit == LimitOf::Node;
        let unread = " unless its restartPolicy is Never or it is ephemeral. ";
        let may_be_unread = is_slow && self.combination.outcome != Outcome::ChildProcess;
        reader.one_of([". ", if may_be_unread { unread } else { ". " }]);
    }

    fn advice(&self, reader: &mut Reader<'_>) {
        reader.text(match self.combination.limit {
            LimitOf::Container => {
                "If the container needs more memory, raise its limit (resources.limits.memory). "
            }
            LimitOf::Pod => {
                "If the pod needs more memory, raise the limits of its containers \
                 (resources.limits.memory). "
            }
            LimitOf::AllPods => {
                "The limit that was reached is not the pod's own. Raise the requests of pods that use more memory than \
                 they request, or limit them. "
            }
            LimitOf::Node => {
                "The limit that was reached is not the pod's own. Limit hog.service with MemoryMax=, move it to \
                 another node, or reserve more memory for the system. "
            }
        });
    }

    /// Reads the memory by kind, and the processes that are left.
    fn of_cgroup(&self, reader: &mut Reader<'_>) {
        let all_died = self.combination.limit == LimitOf::Container
            && self.combination.outcome == Outcome::WholeContainer;
        if all_died && reader.rest.starts_with("The ") {
            return; // Next to nothing is left.
        }
        let limit = match self.combination.limit {
            LimitOf::Container => CONTAINER,
            _ => POD,
        };
        let is_container = self.combination.limit == LimitOf::Container;
        let is_group = self.combination.outcome == Outcome::WholeContainer;
        // The allocations of the survivors.
        let least = match (is_container, is_group) {
            (true, true) => 0,
            (true, false) => super::sizes::HELPER,
            (false, _) => super::sizes::PROXY,
        };
        reader.one_of(IN_USE);
        reader.size(least..=limit);
        reader.text(" anonymous memory (heaps and stacks), ");
        reader.size(0..=limit);
        reader.text(" file cache, ");
        reader.size(0..=MIB);
        reader.text(" shared memory (such as an emptyDir of medium Memory)");
        for kind in [" kernel memory", " socket buffers"] {
            // Which of them there are depends on the kernel's version.
            let sentence = reader.rest.split(". ").next();
            if sentence.is_some_and(|sentence| sentence.contains(kind)) {
                reader.text(", ");
                reader.size(0..=limit);
                reader.text(kind);
            }
        }
        reader.text(". ");
        let expected: &[u32] = match (is_container, is_group) {
            (true, true) => &[],
            (true, false) => &[self.helper],
            (false, true) => &[self.proxy],
            (false, false) => &[self.proxy, self.helper],
        };
        let found = reader.processes(limit);
        for pid in expected {
            assert!(found.contains(pid), "{pid}: {}", reader.whole);
        }
        if !is_container {
            assert_eq!(found.first(), Some(&self.proxy), "{}", reader.whole);
        }
        let most = match self.combination.outcome {
            Outcome::MainProcess | Outcome::WholeContainer => expected.len(),
            // Includes the main process.
            Outcome::ChildProcess => expected.len() + 1,
        };
        // The main process may have less than 1 % of the limit.
        let named = expected.len()..=most;
        assert!(named.contains(&found.len()), "{}", reader.whole);
    }

    /// Reads the five pods that exceed their requests most; if the node was out of memory, first
    /// the service that uses most of it.
    fn of_pods(&self, reader: &mut Reader<'_>) {
        let at_node = self.combination.limit == LimitOf::Node;
        if at_node {
            reader.text(&format!("Most memory was used by {HOG} ("));
            reader.size(LEFT..=u64::MAX);
            reader.text(")");
        } else {
            reader.text("The pods that use most memory over their request: ");
        }
        // While the victim releases its memory, its pod may be one of the five.
        let subject = format!("pod shop/{} (", self.combination.name());
        let mut neighbours = self.neighbours.iter();
        for n in usize::from(at_node)..5 {
            reader.text(if n == 0 { "" } else { ", " });
            if self.combination.qos == Qos::BestEffort && reader.rest.starts_with(&subject) {
                reader.text(&subject);
                reader.size(0..=MORE);
                reader.text(", no request)");
                continue;
            }
            let pod = neighbours.next().expect("a neighbour");
            reader.text(&format!("pod shop/{} (", pod.name));
            reader.size(pod.allocates - rounding(pod.allocates)..=pod.allocates + SLACK);
            if pod.request == 0 {
                reader.text(", no request)");
            } else {
                reader.text(", request ");
                reader.size(pod.request - rounding(pod.request)..=pod.request + MIB);
                reader.text(")");
            }
        }
        if at_node {
            reader.text("; outside pods: ");
            reader.size(LEFT..=u64::MAX);
        }
        reader.text(". ");
    }

    /// Reads the processes of the group, which all died by one decision of the kernel.
    fn killed_together(&self, reader: &mut Reader<'_>) {
        // The group, and the process that requests more.
        let all = self.group.len() + 1;
        // The kernel may count the process that it chose first a second time, with the group.
        let counted = usize::try_from(self.kills).unwrap_or(usize::MAX);
        assert!((all..=all + 1).contains(&counted), "{}", reader.whole);
        reader.text("The largest processes were ");
        let mut named = Vec::new();
        let mut largest = u64::MAX;
        while named.len() < NAMED {
            reader.text(if named.is_empty() { "" } else { ", " });
            named.push(reader.number());
            reader.text(" (provoke) with ");
            largest = reader.size(0..=largest);
        }
        let more = all - NAMED;
        reader.text(&format!(", and {more} more; together they had "));
        // At least the allocation, up to then, of the process that requests more.
        reader.size(super::sizes::HELPER..=u64::MAX);
        reader.text(" of anonymous memory. ");
        let trigger = self.requester(reader);
        // The process that requests more is started last.
        let mut last = named.iter().filter(|pid| !self.group.contains(pid));
        let at_node_limit = self.combination.limit == LimitOf::Node;
        let first = *last.next().unwrap_or(&trigger);
        assert!(
            (first == trigger || at_node_limit) && last.all(|pid| *pid == first),
            "{}",
            reader.whole
        );
        named.sort_unstable();
        named.dedup();
        assert_eq!(named.len(), NAMED, "{}", reader.whole);
    }

    fn victim(&self, reader: &mut Reader<'_>) {
        reader.text("Process ");
        let pid = reader.number();
        assert!(
            ![self.helper, self.proxy].contains(&pid),
            "{}",
            reader.whole
        );
        reader.text(" (provoke) of UID 0 had ");
        let most = match self.combination.limit {
            LimitOf::Container => CONTAINER,
            LimitOf::Pod => POD,
            LimitOf::AllPods => LEFT + SLACK,
            LimitOf::Node => MORE,
        };
        reader.size(most.min(LEFT) / 4..=most);
        reader.text(" of anonymous memory, ");
        reader.size(0..=PROGRAM);
        reader.text(" of file cache and ");
        reader.size(0..=MIB);
        reader.text(" of shared memory. ");
        if self.combination.limit == LimitOf::Node && reader.rest.starts_with("More ") {
            self.requester(reader);
        } else {
            reader.text("The process triggered the kill itself.");
        }
    }

    /// Reads the pid of the process whose request failed: if the node has no memory left, any
    /// process may be the first.
    fn requester(&self, reader: &mut Reader<'_>) -> u32 {
        reader.text("More memory was requested by process ");
        let pid = reader.number();
        if self.combination.limit == LimitOf::Node {
            reader.text(" (");
            // The last sentence: the name, and the other container if the process is in one.
            let by = reader.rest.strip_suffix('.').expect("a sentence");
            let other = by.split_once(") in container ");
            assert!(by.ends_with(')') || other.is_some(), "{}", reader.whole);
            reader.rest = "";
        } else {
            reader.text(" (provoke).");
        }
        pid
    }
}

/// Returns the error of a size, which is printed with one decimal.
const fn rounding(size: u64) -> u64 {
    if size < 1 << 30 {
        MIB / 10
    } else {
        (1 << 30) / 10
    }
}

impl Reader<'_> {
    fn one_of<const N: usize>(&mut self, texts: [&str; N]) {
        let mut found = texts.into_iter();
        let found = found.find(|text| self.rest.starts_with(text));
        self.text(found.unwrap_or(texts[0]));
    }

    fn text(&mut self, expected: &str) {
        let Some(rest) = self.rest.strip_prefix(expected) else {
            panic!(
                "{expected:?} expected at {:?} of {:?}",
                self.rest, self.whole
            );
        };
        self.rest = rest;
    }

    fn number(&mut self) -> u32 {
        let end = self.rest.find(|c: char| !c.is_ascii_digit());
        let (digits, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        let number = digits.parse();
        let number = number.unwrap_or_else(|_| panic!("no number at {:?}", self.rest));
        self.rest = rest;
        number
    }

    /// Reads a size like `12.5Mi`.
    fn size(&mut self, expected: RangeInclusive<u64>) -> u64 {
        let end = self.rest.find([' ', ',', '.', ')', '(']);
        // Distinguishes the point of a number from that of a sentence.
        let is_point = |at: usize| {
            let after = self.rest.get(at + 1..).and_then(|rest| rest.chars().next());
            self.rest[at..].starts_with('.') && after.is_some_and(|c| c.is_ascii_digit())
        };
        let end = match end {
            Some(at) if is_point(at) => {
                let further = self.rest[at + 1..].find([' ', ',', '.', ')', '(']);
                further.map_or(self.rest.len(), |further| at + 1 + further)
            }
            Some(at) => at,
            None => self.rest.len(),
        };
        let (text, rest) = self.rest.split_at(end);
        let bytes = bytes(text).unwrap_or_else(|| panic!("no size: {text:?} in {:?}", self.whole));
        assert!(
            expected.contains(&bytes),
            "{text} is {bytes}, expected {expected:?} at {rest:?} of {:?}",
            self.whole
        );
        self.rest = rest;
        bytes
    }

    /// Reads the pids of the largest processes, which are in order and at most `most` bytes large.
    fn processes(&mut self, most: u64) -> Vec<u32> {
        let mut found = Vec::new();
        if !self.rest.starts_with("The largest other processes: ") {
            return found;
        }
        self.text("The largest other processes: ");
        loop {
            found.push(self.number());
            self.text(" (provoke) with ");
            self.size(0..=most + PROGRAM);
            if !self.rest.starts_with(", ") {
                self.text(". ");
                return found;
            }
            self.text(", ");
        }
    }
}

fn bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text.get(digits.len()..)? {
        "" => 1,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        _ => return None,
    };
    let (whole, tenths) = digits.split_once('.').unwrap_or((digits, "0"));
    let (whole, tenths): (u64, u64) = (whole.parse().ok()?, tenths.parse().ok()?);
    Some(whole * unit + tenths * unit / 10)
}
