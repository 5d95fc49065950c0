//! EDGE: reads the sources of a view. Each reading begins with a new connection, so that an agent
//! that was restarted is found again.

use std::collections::VecDeque;

use nodepulse_core::incident::{API_VERSION, JsonIncident};
use nodepulse_io::clock::Clock;
use nodepulse_io::control_socket::{self, DaemonError};
use nodepulse_linux::host::HostRoot;
use nodepulse_linux::host::cgroup::usage;
use nodepulse_linux::store::Reader;

use crate::arguments::Arguments;
use crate::metrics::{self, Histograms};
use crate::view::{self, CpuTimes, MAX_KEPT, View};

pub struct Collector {
    arguments: Arguments,
    latency: Histograms,
    tasks: VecDeque<u64>,
    history: Reader,
    /// The newest last.
    incidents: VecDeque<JsonIncident>,
    cpu_times: CpuTimes,
}

impl Collector {
    pub fn new(arguments: Arguments) -> Self {
        Self {
            latency: Histograms::new(),
            tasks: VecDeque::new(),
            history: Reader::new(arguments.history_directory.clone()),
            incidents: VecDeque::new(),
            cpu_times: CpuTimes::default(),
            arguments,
        }
    }

    pub fn read(&mut self) -> View {
        let get = |page| control_socket::get(&self.arguments.socket, page);
        let explanation = get("/v1/explain").map_err(|err| self.reason(err));
        let explanation = explanation.and_then(|text| {
            serde_json::from_str(&text)
                .map_err(|err| format!("{err}; check that the agent has the same version"))
        });
        let latency = get("/metrics").map(|text| metrics::parse(&text));
        let latency = latency.map_err(|err| self.reason(err)).map(|latency| {
            let before = std::mem::replace(&mut self.latency, latency);
            metrics::since(&self.latency, &before)
        });
        if let Ok(explanation) = &explanation {
            view::add_tasks(&mut self.tasks, explanation);
        }
        let incidents = self.read_history();
        let named = self.incidents.iter().filter_map(|incident| {
            let pod = incident.object.pod.as_ref()?;
            let name = pod.name.is_some().then(|| incident.object_name());
            Some((&*pod.uid, name?))
        });
        let (named, now) = (named.collect(), Clock::kernel().monotonic());
        let usage = usage::pods_and_units(&HostRoot::new("/"));
        let usage = usage.map(|usage| self.cpu_times.usage(usage, &named, now));
        View {
            explanation,
            latency,
            tasks: self.tasks.clone(),
            incidents: incidents.map(|()| self.incidents.iter().rev().cloned().collect()),
            usage: usage.map_err(|err| err.to_string()),
        }
    }

    fn reason(&self, err: DaemonError) -> String {
        let socket = self.arguments.socket.display();
        match err {
            DaemonError::NotRunning => format!("no agent on {socket}; start it, or set --socket"),
            DaemonError::Failed(why) => why,
        }
    }

    /// Reads the revisions that were recorded since the last call.
    fn read_history(&mut self) -> Result<(), String> {
        let lines = self.history.next_lines().map_err(|err| {
            let directory = &self.arguments.history_directory;
            // A later history may begin again with the first segment.
            self.history = Reader::new(directory.clone());
            self.incidents.clear();
            let cure = "start the agent, set --history-directory, or run this as root";
            format!("no history in {}: {err}; {cure}", directory.display())
        })?;
        // A newer agent may write another form, which is left out.
        let parsed = lines.iter().flat_map(|line| serde_json::from_str(line));
        for incident in parsed.filter(|one: &JsonIncident| one.api_version == API_VERSION) {
            let mut newest = self.incidents.iter_mut().rev();
            match newest.find(|known| known.id == incident.id) {
                Some(earlier) => *earlier = incident,
                None => self.incidents.push_back(incident),
            }
            if MAX_KEPT < self.incidents.len() {
                self.incidents.pop_front();
            }
        }
        Ok(())
    }
}
