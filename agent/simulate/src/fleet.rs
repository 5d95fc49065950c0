//! The schedule of all nodes and pods: what is due, what is under way, and what follows from its
//! result.
// tidy: long: one state, of which each timer and each result changes a part

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use nodepulse_core::backoff::Jitter;
use nodepulse_core::clock::BootNanos;
use nodepulse_core::node_status::report::{ReportDue, SendReason};
use nodepulse_core::reading::Resource;
use nodepulse_kube::status::SendRule;
use nodepulse_kube::{ApiError, Refusal};
use tokio::time::MissedTickBehavior;

use crate::arguments::Arguments;
use crate::kill;
use crate::node::{Node, StoredConditions};
use crate::perform::{Done, LEASE_DURATION, Outcome, Shared, Task, perform};
use crate::pod::{Stage, Step, StoredPod, Times, Uid, seconds};
use crate::pods::Pods;
use crate::tally::Tally;
use crate::watch::{Seen, SeenNode, Watch};

/// Requests at once, on all connections.
const AT_ONCE: usize = 256;

const PROGRESS: Duration = Duration::from_secs(10);

/// Time until a failed step is tried again: the interval of a kubelet.
const RETRY: Duration = Duration::from_secs(10);

/// Time that a pod waits for its node.
const UNREGISTERED: Duration = Duration::from_secs(1);

/// What is due at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Register(u32),
    /// With the epoch of the node.
    Lease(u32, u32),
    Status(u32, u32),
    /// With the generation of the slot.
    Pod(u32, u32),
    CreatePod(u32),
    Pressure(Resource, Duration),
    PressureEnds(u32, Resource),
    Churn(Duration),
    Kill(Duration),
}

pub struct Fleet {
    shared: Rc<Shared>,
    times: Times,
    pressure_for: Duration,
    pods_per_node: u32,
    nodes: Vec<Node>,
    pods: Pods,
    timers: BinaryHeap<Reverse<(BootNanos, Timer)>>,
    tally: Tally,
    jitter: Jitter,
    started: BootNanos,
}

impl Fleet {
    pub fn new(arguments: &Arguments, shared: Rc<Shared>) -> Self {
        let started = shared.clock.now().boot;
        let count = arguments.nodes.unwrap_or_default();
        let mut fleet = Self {
            shared,
            times: Times {
                start: arguments.start_after,
                run: arguments.succeed_after,
                stop: arguments.stop_after,
            },
            pressure_for: arguments.pressure_for,
            pods_per_node: arguments.pods_per_node,
            nodes: (0..count).map(|_| Node::new()).collect(),
            pods: Pods::default(),
            timers: BinaryHeap::new(),
            tally: Tally::default(),
            jitter: Jitter::seeded(started.0),
            started,
        };
        for node in 0..count {
            fleet.register_later(node);
        }
        for &(resource, interval) in &arguments.pressure {
            fleet.after(interval, Timer::Pressure(resource, interval));
        }
        let churn = arguments.churn.map(Timer::Churn);
        let kills = arguments.kill_rate.map(Timer::Kill);
        for timer in [churn, kills].into_iter().flatten() {
            fleet.after(Duration::ZERO, timer);
        }
        fleet
    }

    /// Runs until `end` is ready. Fails with the reason for which it cannot continue.
    pub async fn run(
        &mut self,
        (mut nodes, mut pods): (Watch<SeenNode>, Watch<StoredPod>),
        end: impl Future<Output = ()>,
    ) -> Result<(), String> {
        let mut under_way = FuturesUnordered::new();
        let mut progress = tokio::time::interval(PROGRESS);
        progress.set_missed_tick_behavior(MissedTickBehavior::Delay);
        progress.tick().await;
        let alarm = self.shared.clock.alarm();
        let mut alarm = alarm.map_err(|err| format!("cannot create a timer: {err}"))?;
        tokio::pin!(end);
        loop {
            while under_way.len() < AT_ONCE
                && let Some((node, task)) = self.next_task()
            {
                under_way.push(perform(Rc::clone(&self.shared), node, task));
            }
            let next = self.timers.peek().map(|Reverse((due, _))| *due);
            let has_room = under_way.len() < AT_ONCE;
            tokio::select! {
                () = &mut end => return Ok(()),
                _ = progress.tick() => self.print_progress(),
                Some(done) = under_way.next(), if !under_way.is_empty() => self.done(done)?,
                Some(seen) = nodes.recv() => self.seen_node(seen)?,
                Some(seen) = pods.recv() => self.seen_pod(seen)?,
                result = alarm.at(next.unwrap_or(BootNanos(u64::MAX))), if has_room && next.is_some() => {
                    result.map_err(|err| format!("a timer failed: {err}"))?;
                }
            }
        }
    }

    pub fn summary(&self) -> String {
        let elapsed = self.now().since(self.started);
        self.tally.summary(elapsed, &self.shared.clients)
    }

    fn now(&self) -> BootNanos {
        self.shared.clock.now().boot
    }

    fn after(&mut self, wait: Duration, timer: Timer) {
        self.timers.push(Reverse((self.now().plus(wait), timer)));
    }

    fn node(&mut self, node: u32) -> Option<&mut Node> {
        self.nodes.get_mut(usize::try_from(node).ok()?)
    }

    #[expect(clippy::print_stderr, reason = "progress is for people that wait")]
    fn print_progress(&mut self) {
        let registered = self.nodes.iter().filter(|node| node.is_registered());
        let state = format!(
            "{} s: {} of {} nodes registered, {} of {} pods running",
            self.now().since(self.started).as_secs(),
            registered.count(),
            self.nodes.len(),
            self.pods.running(),
            self.pods.len()
        );
        let line = self.tally.progress(&state, PROGRESS, &self.shared.clients);
        eprintln!("{line}");
    }

    /// Returns the next step that is due.
    fn next_task(&mut self) -> Option<(u32, Task)> {
        // The same for all, so that rates cannot keep this loop.
        let now = self.now();
        while let Some(&Reverse((due, timer))) = self.timers.peek()
            && due <= now
        {
            self.timers.pop();
            if let Some(task) = self.fire(timer, due) {
                return Some(task);
            }
        }
        None
    }

    fn fire(&mut self, timer: Timer, due: BootNanos) -> Option<(u32, Task)> {
        match timer {
            Timer::Register(number) => {
                let node = self.node(number)?;
                let task = Task::Register(node.registrar.take()?, node.pressures.clone());
                Some((number, task))
            }
            Timer::Lease(number, epoch) => {
                let node = self.node(number)?;
                if node.epoch != epoch || node.is_lease_busy || !node.is_registered() {
                    return None;
                }
                node.is_lease_busy = true;
                let task = Task::Lease((node.uid, epoch), node.lease, due);
                Some((number, task))
            }
            Timer::Status(number, epoch) => self.status(number, epoch),
            Timer::Pod(slot, generation) => {
                if !self.pods.has_generation(slot, generation) {
                    return None;
                }
                let node = self.pods.get_mut(slot)?.pod.node;
                if !self.node(node)?.is_registered() {
                    // The name may be that of another node.
                    self.after(UNREGISTERED, timer);
                    return None;
                }
                let tracked = self.pods.get_mut(slot)?;
                let (_, step) = tracked.pod.next(&self.times)?;
                tracked.is_busy = true;
                let pod = Box::new(tracked.pod.clone());
                Some((pod.node, Task::Pod(slot, pod, step)))
            }
            Timer::CreatePod(number) => {
                let node = self.node(number)?;
                match (node.is_registered(), node.epoch) {
                    (true, _) => return Some((number, Task::CreatePod)),
                    (false, 0) => self.after(UNREGISTERED, timer),
                    (false, _) => {}
                }
                None
            }
            Timer::Pressure(resource, interval) => {
                self.after(interval, timer);
                let number = self.random(self.nodes.len());
                let now = self.now();
                let node = self.node(number)?;
                node.pressures.insert(resource, now);
                let epoch = node.epoch;
                self.after(self.pressure_for, Timer::PressureEnds(number, resource));
                self.status(number, epoch)
            }
            Timer::PressureEnds(number, resource) => {
                let node = self.node(number)?;
                node.pressures.remove(&resource);
                let epoch = node.epoch;
                self.status(number, epoch)
            }
            Timer::Churn(interval) => {
                self.after(interval, timer);
                let from = self.random(self.pods.slots());
                let slot = self.pods.find(from, |tracked| {
                    tracked.is_load && tracked.pod.deleted.is_none()
                })?;
                let pod = self.pods.get_mut(slot)?.pod.clone();
                Some((pod.node, Task::DeletePod(Box::new(pod))))
            }
            Timer::Kill(interval) => {
                self.after(interval, timer);
                let from = self.random(self.pods.slots());
                let slot = self
                    .pods
                    .find(from, |tracked| tracked.pod.stage == Stage::Running)?;
                let now = self.shared.clock.now();
                let pod = &self.pods.get_mut(slot)?.pod;
                let draft = kill::draft(pod, now)?;
                Some((pod.node, Task::Event(Box::new(draft))))
            }
        }
    }

    fn status(&mut self, number: u32, epoch: u32) -> Option<(u32, Task)> {
        let now = self.now();
        let node = self.node(number)?;
        if node.epoch != epoch || !node.is_registered() {
            return None;
        }
        if node.is_status_busy {
            node.is_stale = true;
            return None;
        }
        let stored = (!std::mem::take(&mut node.is_stale)).then_some(node.stored);
        node.is_status_busy = true;
        node.seen = None;
        let rule = match node.report.decide(now) {
            ReportDue::Now(_) => SendRule::Always,
            ReportDue::IfChanged => SendRule::IfChanged,
        };
        let registered = (node.uid, epoch);
        let task = Task::Status(registered, stored, node.pressures.clone(), rule);
        Some((number, task))
    }

    fn random(&mut self, count: usize) -> u32 {
        let count = u64::try_from(count).unwrap_or_default();
        let part = self.jitter.part(Duration::from_nanos(count));
        u32::try_from(part.as_nanos()).unwrap_or_default()
    }

    fn register_later(&mut self, number: u32) {
        let registrar = self.node(number).and_then(|node| node.registrar.as_mut());
        if let Some(wait) = registrar.map(|registrar| registrar.next_delay()) {
            self.after(wait, Timer::Register(number));
        }
    }

    fn done(&mut self, done: Done) -> Result<(), String> {
        let number = done.node;
        // Without these there is no node; pods and Events can be in a namespace that is removed.
        let is_essential = !matches!(done.outcome, Outcome::Created(_) | Outcome::Other(_));
        let is_nodeless = matches!(done.outcome, Outcome::Renewed(_, Ok(None)));
        let error = match done.outcome {
            Outcome::Registered(registrar, result) => self.registered(number, registrar, result),
            Outcome::Renewed(epoch, result) => self.renewed(number, epoch, result),
            Outcome::Synced(epoch, rule, result) => self.synced(number, (epoch, rule), result),
            Outcome::Pod(pod, step, result) => self.pod_done(pod, step, result),
            Outcome::Created(result) => result
                .inspect_err(|_| self.after(RETRY, Timer::CreatePod(number)))
                .err(),
            Outcome::Other(result) => result.err().filter(|err| !is_gone(err)),
        };
        if is_nodeless {
            return self.failed(done.operation, "its Node cannot be read", false);
        }
        if let Some(err) = error {
            if matches!(err, ApiError::OtherNode { .. }) {
                return Err(err.chain());
            }
            let is_refusal = is_essential && err.refusal() == Some(Refusal::Forbidden);
            return self.failed(done.operation, &err.chain(), is_refusal);
        }
        self.tally.succeeded(done.operation, done.took);
        Ok(())
    }

    /// Reports a failure; the first of its kind ends the simulation if it `is_refusal`, because
    /// later ones may be those of a server that starts.
    #[expect(clippy::print_stderr, reason = "failures are printed as they happen")]
    fn failed(
        &mut self,
        operation: &'static str,
        why: &str,
        is_refusal: bool,
    ) -> Result<(), String> {
        if is_refusal && !self.tally.has_succeeded(operation) {
            let cure = "grant this permission to the user of the kubeconfig, or use another one";
            return Err(format!("cannot {operation}: {why}; {cure}"));
        }
        if let Some(line) = self.tally.failed(operation, why) {
            eprintln!("{line}");
        }
        Ok(())
    }

    fn registered(
        &mut self,
        number: u32,
        registrar: Box<nodepulse_kube::register::Registrar>,
        result: Result<(Uid, StoredConditions, bool), ApiError>,
    ) -> Option<ApiError> {
        let (now, fraction) = (self.now(), self.jitter.fraction());
        let node = self.node(number)?;
        let (uid, stored, existed) = match result {
            Ok(found) => found,
            Err(err) => {
                node.registrar = Some(registrar);
                self.register_later(number);
                return Some(err);
            }
        };
        node.uid = uid;
        node.stored = stored;
        node.is_stale = existed;
        if !existed {
            node.report.sent(now, SendReason::First, fraction);
        }
        let epoch = node.epoch;
        let due = node.report.due().unwrap_or(now);
        self.after(Duration::ZERO, Timer::Lease(number, epoch));
        self.timers
            .push(Reverse((due, Timer::Status(number, epoch))));
        for _ in 0..self.pods_per_node {
            self.after(Duration::ZERO, Timer::CreatePod(number));
        }
        None
    }

    fn renewed(
        &mut self,
        number: u32,
        epoch: u32,
        result: Result<Option<(Option<u64>, Duration)>, ApiError>,
    ) -> Option<ApiError> {
        let node = self.node(number).filter(|node| node.epoch == epoch)?;
        node.is_lease_busy = false;
        node.lease = None;
        let error = match result {
            // Not read, or gone: then the watch will show it.
            Ok(None) => None,
            Ok(Some((version, late))) => {
                node.lease = version;
                self.tally.renewed(late);
                None
            }
            Err(err) => Some(err),
        };
        let interval = self.jitter.stretch(LEASE_DURATION / 4, 0.04);
        self.after(interval, Timer::Lease(number, epoch));
        error
    }

    fn synced(
        &mut self,
        number: u32,
        (epoch, rule): (u32, SendRule),
        result: Result<(StoredConditions, bool), ApiError>,
    ) -> Option<ApiError> {
        let (now, fraction) = (self.now(), self.jitter.fraction());
        let node = self.node(number).filter(|node| node.epoch == epoch)?;
        node.is_status_busy = false;
        let (stored, is_sent) = match result {
            Ok(written) => written,
            Err(ApiError::OtherNode { .. }) => {
                node.deleted();
                return None;
            }
            Err(err) => {
                node.is_stale = true;
                self.after(RETRY, Timer::Status(number, epoch));
                return Some(err);
            }
        };
        node.stored = stored;
        let seen = node.seen.take();
        node.is_stale |= seen.is_some_and(|seen| !seen.has_statuses_of(&stored));
        if is_sent {
            let reason = match rule {
                SendRule::Always => SendReason::Heartbeat,
                SendRule::IfChanged => SendReason::Changed,
            };
            node.report.sent(now, reason, fraction);
        }
        let next = node.report.due().filter(|_| is_sent);
        let again = node.is_stale.then_some(now);
        let timer = Timer::Status(number, epoch);
        let due = next.into_iter().chain(again);
        self.timers.extend(due.map(|due| Reverse((due, timer))));
        None
    }

    fn pod_done(
        &mut self,
        (slot, uid): (u32, Uid),
        (step, at): (Step, u32),
        result: Result<(), ApiError>,
    ) -> Option<ApiError> {
        // It may have been deleted, and the slot be that of another one.
        let tracked = self
            .pods
            .get_mut(slot)
            .filter(|tracked| tracked.pod.uid == uid)?;
        match (result, step) {
            (Ok(()), Step::Report(stage)) => {
                tracked.is_busy = false;
                tracked.pod.restarts = tracked.pod.restarts_at(stage);
                tracked.pod.is_scheduled = true;
                tracked.pod.stage = stage;
                tracked.pod.since = at;
                self.arm_pod(slot, Duration::ZERO);
                None
            }
            // It stays busy until the watch reports its end: it may have finalizers.
            (Ok(()), Step::Remove) => None,
            (Err(err), _) => {
                // If it is gone, the watch makes this timer invalid.
                tracked.is_busy = false;
                self.arm_pod(slot, RETRY);
                Some(err).filter(|err| !is_gone(err))
            }
        }
    }

    /// Sets the time of the pod's next step, after `pause` at the earliest.
    fn arm_pod(&mut self, slot: u32, pause: Duration) {
        let now = seconds(self.shared.clock.now().wall);
        let Some(tracked) = self.pods.get_mut(slot) else {
            return;
        };
        let Some((wait, _)) = tracked.pod.next(&self.times) else {
            return;
        };
        let pod = &tracked.pod;
        let is_over = pod.deleted.is_some() || pod.stage == Stage::Bound;
        let passed = if is_over {
            0
        } else {
            now.saturating_sub(pod.since)
        };
        let wait = wait.saturating_sub(Duration::from_secs(passed.into()));
        if let Some(generation) = self.pods.rearm(slot) {
            self.after(wait.max(pause), Timer::Pod(slot, generation));
        }
    }

    fn seen_node(&mut self, seen: Seen<SeenNode>) -> Result<(), String> {
        match seen {
            Seen::Present(seen) => {
                let number = self.shared.template.number(&seen.name);
                let Some((number, node)) = number.and_then(|n| Some((n, self.node(n)?))) else {
                    return Ok(());
                };
                if node.uid != seen.uid {
                    return Ok(());
                }
                if !seen.is_simulated {
                    let name = seen.name;
                    return Err(format!(
                        "node {name} has lost its taints, or a kubelet maintains it"
                    ));
                }
                if node.is_status_busy {
                    node.seen = Some(seen.conditions);
                } else if !seen.conditions.has_statuses_of(&node.stored) && !node.is_stale {
                    node.is_stale = true;
                    let timer = Timer::Status(number, node.epoch);
                    self.after(Duration::ZERO, timer);
                }
            }
            Seen::Deleted(uid) => {
                let node = self.nodes.iter_mut().find(|node| node.uid == uid);
                if let Some(node) = node.filter(|node| node.is_registered()) {
                    node.deleted();
                }
            }
            Seen::Relisting => {}
            Seen::Listed => self.tally.succeeded("watch nodes", Duration::ZERO),
            Seen::Refused => return self.failed("watch nodes", "403", true),
        }
        Ok(())
    }

    fn seen_pod(&mut self, seen: Seen<StoredPod>) -> Result<(), String> {
        match seen {
            Seen::Present(stored) => {
                let number = self.shared.template.number(&stored.node);
                let Some(number) = number.filter(|number| self.node(*number).is_some()) else {
                    return Ok(());
                };
                if let Some(slot) = self.pods.present(stored, number) {
                    self.arm_pod(slot, Duration::ZERO);
                }
            }
            Seen::Deleted(uid) => self.forget_pod(uid),
            Seen::Relisting => self.pods.begin_listing(),
            Seen::Listed => {
                self.tally.succeeded("watch pods", Duration::ZERO);
                for uid in self.pods.end_listing() {
                    self.forget_pod(uid);
                }
            }
            Seen::Refused => return self.failed("watch pods", "403", true),
        }
        Ok(())
    }

    fn forget_pod(&mut self, uid: Uid) {
        if let Some(tracked) = self.pods.remove(uid)
            && tracked.is_load
            && 0 < self.pods_per_node
        {
            self.after(Duration::ZERO, Timer::CreatePod(tracked.pod.node));
        }
    }
}

/// Returns true if the pod does not exist any more, or another one has its name.
fn is_gone(err: &ApiError) -> bool {
    matches!(err.refusal(), Some(Refusal::NotFound | Refusal::Conflict))
}
