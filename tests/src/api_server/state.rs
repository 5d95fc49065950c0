//! Contains the state that all connections share, and changes it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tokio::sync::watch as signal;

use super::auth::{Grant, Identity};
use super::connection::{Control, Mode};
use super::faults::Faults;
use super::record::Recorded;
use super::resource::Resource;
use super::stamp::{self, ServerClock};
use super::store::Store;

/// The state that all connections share. A lock, not a task with messages: the tests read it
/// without waiting, and the lock is never kept across an await.
pub(super) struct Inner {
    pub(super) state: Mutex<ServerState>,
    /// Notified at every change of the state.
    pub(super) changed: signal::Sender<()>,
    pub(super) clock: ServerClock,
    pub(super) faults: Faults,
}

pub(super) type Log = Box<dyn Fn(&Recorded) + Send>;

#[derive(Default)]
pub(super) struct ServerState {
    pub(super) store: Store,
    pub(super) requests: Vec<Recorded>,
    pub(super) open: BTreeMap<u64, Arc<Control>>,
    pub(super) opened: u64,
    /// Determines whether new connections are frozen.
    pub(super) freezing: Freezing,
    /// Maximum number of concurrent requests on a new connection.
    pub(super) max_streams: Option<u32>,
    pub(super) tokens: HashMap<String, Identity>,
    /// Identities by certificate, all of which this server has issued.
    pub(super) certificates: HashMap<Vec<u8>, Identity>,
    pub(super) grants: Vec<Grant>,
    /// Number of calls that requested bookmarks.
    pub(super) bookmarks: u64,
    pub(super) log: Option<Log>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Freezing {
    #[default]
    No,
    NewConnections,
}

impl Inner {
    pub(super) fn new(clock: ServerClock) -> Arc<Self> {
        let inner = Self {
            state: Mutex::default(),
            changed: signal::Sender::new(()),
            clock,
            faults: Faults::default(),
        };
        for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            let status = json!({"phase": "Active"});
            inner.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}, "status": status}));
        }
        Arc::new(inner)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, ServerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn touch(&self) {
        self.changed.send_replace(());
    }

    pub(super) fn record(&self, request: Recorded) -> usize {
        let index = {
            let mut state = self.state();
            state.requests.push(request);
            state.requests.len() - 1
        };
        self.touch();
        index
    }

    pub(super) fn answered(&self, index: usize, status: u16) {
        {
            let state = &mut *self.state();
            if let Some(request) = state.requests.get_mut(index) {
                request.status = Some(status);
                request.answered_at = Some(self.clock.boot());
                if let Some(log) = &state.log {
                    log(request);
                }
            }
        }
        self.touch();
    }

    pub(super) fn put(&self, mut object: Value) -> Value {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let resource = Resource::of_kind(&text(&object["apiVersion"]), &text(&object["kind"]))
            .expect("an object of a kind that the server knows");
        let key = (
            text(&object["metadata"]["namespace"]),
            text(&object["metadata"]["name"]),
        );
        let stored = {
            let store = &mut self.state().store;
            let old = store.get(resource, &key).map(|old| old["metadata"].clone());
            for field in ["uid", "creationTimestamp"] {
                if !object["metadata"][field].is_null() {
                    continue;
                }
                object["metadata"][field] = match &old {
                    Some(old) => old[field].clone(),
                    None if field == "uid" => json!(store.next_uid()),
                    None => json!(stamp::time(self.clock.wall())),
                };
            }
            Value::clone(&*store.put(resource, key, object))
        };
        self.touch();
        stored
    }

    pub(super) fn open(&self) -> Arc<Control> {
        let control = {
            let mut state = self.state();
            state.opened += 1;
            let mode = match state.freezing {
                Freezing::No => Mode::Open,
                Freezing::NewConnections => Mode::Frozen,
            };
            let control = Arc::new(Control::new(state.opened, mode));
            state.open.insert(control.id, Arc::clone(&control));
            control
        };
        self.touch();
        control
    }

    pub(super) fn close(&self, id: u64) {
        self.state().open.remove(&id);
        self.touch();
    }

    pub(super) fn set_connections(&self, mode: Mode) {
        let open: Vec<_> = self.state().open.values().cloned().collect();
        open.iter().for_each(|control| control.set(mode));
    }

    pub(super) fn freeze_connections(&self) {
        self.set_connections(Mode::Frozen);
    }

    pub(super) fn freeze_all(&self) {
        self.state().freezing = Freezing::NewConnections;
        self.set_connections(Mode::Frozen);
    }
}
