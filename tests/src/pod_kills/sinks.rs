//! When each receiver got an incident: the API server, a collector, a webhook, the journal.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nodepulse_core::clock::BootNanos;
use nodepulse_core::incident::IncidentId;
use nodepulse_core::kube_event::EventId;
use nodepulse_io::clock::Clock;
use nodepulse_linux::journal::SOCKET;

use crate::api_server::ApiServer;
use crate::receiver::Receiver;

/// The largest record of the journal.
const RECORD: usize = 256 << 10;

/// Times since boot, in nanoseconds.
#[derive(Debug, Default, Clone, Copy)]
pub struct Arrivals {
    pub event: Option<u64>,
    /// The first revision at the collector and at the webhook.
    pub first: [Option<u64>; 2],
    /// The settled revision at the first of them.
    pub settled: Option<u64>,
    pub journal: Option<u64>,
}

/// The receivers besides the API server.
#[derive(Debug)]
pub struct Sinks {
    collector: Receiver,
    webhook: Receiver,
    journal: Arc<Mutex<Vec<(String, BootNanos)>>>,
}

/// Gives this thread, and the programs that it starts, an empty directory for the journal's socket.
pub fn hide_the_journal() -> io::Result<()> {
    let dir = Path::new(SOCKET).with_file_name("");
    fs::create_dir_all(&dir)?;
    unshare(CloneFlags::CLONE_NEWNS)?;
    let nothing = None::<&str>;
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(nothing, "/", nothing, private, nothing)?;
    mount(nothing, &dir, Some("tmpfs"), MsFlags::empty(), nothing)?;
    Ok(())
}

impl Sinks {
    /// Starts the receivers, after [`hide_the_journal`].
    pub async fn start() -> io::Result<Self> {
        let socket = UnixDatagram::bind(SOCKET)?;
        let journal = Arc::new(Mutex::new(Vec::new()));
        let records = Arc::clone(&journal);
        thread::spawn(move || {
            let mut record = vec![0; RECORD];
            while let Ok(length) = socket.recv(&mut record) {
                let at = Clock::kernel().now().boot;
                let text = String::from_utf8_lossy(&record[..length]);
                let id = text.lines().find_map(|l| l.strip_prefix("NODEPULSE_ID="));
                let mut records = records.lock().unwrap_or_else(PoisonError::into_inner);
                records.extend(id.map(|id| (id.to_owned(), at)));
            }
        });
        Ok(Self {
            collector: Receiver::start(200, None).await?,
            webhook: Receiver::start(200, None).await?,
            journal,
        })
    }

    /// Returns the arguments of an agent that delivers to them.
    pub fn arguments(&self) -> [String; 6] {
        let url = |receiver: &Receiver| format!("http://127.0.0.1:{}", receiver.port);
        [
            "--sinks-otlp-endpoint".to_owned(),
            url(&self.collector),
            "--sinks-webhooks".to_owned(),
            url(&self.webhook),
            "--sinks-journald".to_owned(),
            "auto".to_owned(),
        ]
    }

    /// Returns the first arrivals of each incident, by the time since boot at which it began.
    pub fn arrivals(&self, api: &ApiServer) -> BTreeMap<u64, Arrivals> {
        let (mut all, mut names) = (BTreeMap::<u64, Arrivals>::new(), BTreeMap::new());
        for (receiver, which) in [&self.collector, &self.webhook].into_iter().zip(0..) {
            for received in receiver.received() {
                for incident in received.incidents() {
                    let number = number(&incident.id);
                    names.extend(in_name(&incident.id).map(|name| (name, number)));
                    let (one, at) = (all.entry(number).or_default(), received.at.0);
                    one.first[which].get_or_insert(at);
                    if incident.is_settled {
                        one.settled = Some(one.settled.map_or(at, |first| first.min(at)));
                    }
                }
            }
        }
        let journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
        for (id, at) in journal.iter() {
            let one = all.entry(number(id)).or_default();
            one.journal.get_or_insert(at.0);
        }
        for request in api.requests_where(|one| one.method == "POST") {
            let name = request.body.as_ref();
            let name = name.and_then(|body| body["metadata"]["name"].as_str());
            let suffix = name.and_then(|name| name.rsplit('.').next());
            let named = suffix.and_then(|suffix| u64::from_str_radix(suffix, 16).ok());
            let number = named.and_then(|named| names.get(&named));
            if let Some(one) = number.and_then(|number| all.get_mut(number)) {
                let at = u64::try_from(request.at.as_nanos()).ok();
                one.event = one.event.or(at);
            }
        }
        all
    }
}

fn number(id: &str) -> u64 {
    id.parse().map_or(0, |id: IncidentId| id.number)
}

/// Returns the number at the end of the name of the Event on the object of an incident.
fn in_name(id: &str) -> Option<u64> {
    let incident = id.parse().ok()?;
    let id = EventId {
        incident,
        on_node: false,
    };
    Some(id.number())
}
