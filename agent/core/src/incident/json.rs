//! The JSON form of incidents, for other programs: `docs/incidents.md`.
// tidy: long: one type for each kind

use std::fmt::Write as _;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::{Incident, Occurrence};
use crate::black_box::{AgentGap, BootEnd, UNCLEAN_REBOOT};
use crate::escape::escape;
use crate::kill_annotation::{MemoryUser, OomKill};
use crate::kube_event::{Finding, KillPlace, Kills, Period, RefusedForks};
use crate::node_status::Status;
use crate::node_status::ledger::ConditionChange;
use crate::pods::{Owner, PodId};
use crate::pressure::io_wait::USED_MOST;
use crate::units::{self, Bytes};

/// The version of the form. Members are added without a new version; none is removed, and none
/// changes its meaning.
pub const API_VERSION: &str = concat!(domain!(), "/incident/v1");

/// The number of killed processes that are named. Of more, only the number is here.
const VICTIMS: usize = 32;

/// One revision of an incident: a whole value, which replaces earlier ones. Unknown facts are
/// absent. Names that the kernel reports are escaped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct JsonIncident {
    /// `nodepulse.dev/incident/v1`.
    pub api_version: String,
    /// Identifies the incident on all machines: the id of the boot, `-`, and a number that grows
    /// with the time since the boot.
    pub id: String,
    /// From 1 on.
    pub revision: u8,
    /// No revision follows.
    pub settled: bool,
    /// The time of the first fact, in RFC 3339 with microseconds. For the kind `Boot`, that of the
    /// last record of the boot that ended, and for `Gap` that of the last record of the agent.
    pub time: String,
    /// The time of the last process that was killed, if that is later. For the kind `Boot`, that of
    /// the boot, and for `Gap` that of the next start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// What it happened to. Empty: the node.
    pub object: JsonObject,
    /// The reason of the Event: one word.
    pub reason: String,
    /// The message of the Event.
    pub message: String,
    /// The kind and its facts; `None` if a newer version wrote a kind that is not known here.
    #[serde(flatten)]
    pub facts: Option<JsonFacts>,
}

/// The object of an incident.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, rename_all = "camelCase")]
pub struct JsonObject {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<JsonPod>,
    /// Name of the container, or the beginning of its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// The systemd unit, slice or session, outside of pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// The unit of the user's service manager, if `unit` is such a manager. The user chose the
    /// name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_unit: Option<String>,
    /// Path of the cgroup.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
}

/// A pod: with its name, unless that could not be found out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, rename_all = "camelCase")]
pub struct JsonPod {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The UID in the API; of a static pod whose name is not known, the hash of its configuration.
    pub uid: String,
}

/// The kinds of incidents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "kind", content = "facts")]
pub enum JsonFacts {
    /// The kernel killed processes for one cause: memory was short.
    #[serde(rename = "OOMKill")]
    OomKill(Box<JsonKill>),
    /// The kernel counted OOM kills of which nothing else is known.
    #[serde(rename = "UnidentifiedOOMKills")]
    UnidentifiedOomKills(JsonUnidentifiedKills),
    /// Forks failed at a cgroup's limit on tasks.
    RefusedForks(JsonForks),
    /// The disk of a volume is slow, does not respond or returns errors.
    Volume(JsonVolume),
    /// A condition of the node has another status than before.
    Condition(JsonCondition),
    /// Incidents of the object were removed from the history before they could be delivered. Only
    /// the receiver that did not get them gets this.
    Summary(JsonSummary),
    /// The machine has booted: how the last boot ended.
    Boot(Box<BootEnd>),
    /// No agent ran for a time, within one boot. Its kills are reported by number.
    Gap(AgentGap),
}

/// OOM kills with one cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct JsonKill {
    #[serde(flatten)]
    pub kill: OomKill,
    /// The processes, at most 32, in the order in which they were killed.
    pub victims: Vec<JsonVictim>,
    /// The process that requested memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trigger: Option<String>,
    /// Path of the cgroup whose limit was reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limiting_cgroup: Option<String>,
    /// The systemd unit, slice or session whose limit was reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limiting_unit: Option<String>,
    /// The kill made a condition of the node True: its memory, or that of all pods, ran out.
    pub node_pressure: bool,
    /// Why the kill has that effect.
    pub verdict: String,
    /// What used most memory after the kill, the largest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub memory_users: Vec<MemoryUser>,
}

/// A killed process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct JsonVictim {
    /// On the host.
    pub pid: u32,
    pub name: String,
    /// On the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// Resident memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct JsonUnidentifiedKills {
    pub kills: u64,
    /// They happened while the agent was down or could not report them.
    pub while_down: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct JsonForks {
    pub forks: u64,
    /// The number of tasks that the limit permits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Path of the cgroup whose limit was reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limiting_cgroup: Option<String>,
    /// The number of tasks of the container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct JsonVolume {
    pub name: String,
    pub disk: String,
    /// `slow`, `stalled` or `errors`.
    pub health: String,
    pub details: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct JsonCondition {
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    pub reason: String,
    pub message: String,
    /// Numbers and causes, such as the units with the most tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<String>,
    /// The incident with which the problem began that is over now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct JsonSummary {
    pub incidents: u64,
    /// Killed processes of these incidents, and of earlier ones that were delivered without them.
    pub kills: u64,
}

impl JsonCondition {
    /// Returns the change; `None` if a newer version wrote it.
    pub fn change(&self) -> Option<ConditionChange> {
        Some(ConditionChange {
            type_: self.type_.clone(),
            status: Status::parse(&self.status)?,
            reason: self.reason.clone(),
            message: self.message.clone(),
            details: self.details.clone(),
            ended: self.ended.as_ref().and_then(|id| id.parse().ok()),
        })
    }
}

impl JsonIncident {
    /// Returns the name of the kind; `None` if a newer version wrote it.
    pub fn kind(&self) -> Option<&'static str> {
        Some(match self.facts.as_ref()? {
            JsonFacts::OomKill(_) => "OOMKill",
            JsonFacts::UnidentifiedOomKills(_) => "UnidentifiedOOMKills",
            JsonFacts::RefusedForks(_) => "RefusedForks",
            JsonFacts::Volume(_) => "Volume",
            JsonFacts::Condition(_) => "Condition",
            JsonFacts::Summary(_) => "Summary",
            JsonFacts::Boot(_) => "Boot",
            JsonFacts::Gap(_) => "Gap",
        })
    }

    /// Returns true if something ended or is as it should be.
    pub fn is_improvement(&self) -> bool {
        match &self.facts {
            Some(JsonFacts::Condition(condition)) => {
                let change = condition.change();
                change.and_then(|change| change.is_problem()) != Some(true)
            }
            Some(JsonFacts::Boot(_)) => self.reason != UNCLEAN_REBOOT,
            Some(JsonFacts::Gap(gap)) => gap.stopped,
            _ => false,
        }
    }

    /// Returns the number of killed processes.
    pub fn kills(&self) -> u64 {
        match &self.facts {
            Some(JsonFacts::OomKill(kill)) => kill.kill.processes,
            Some(JsonFacts::UnidentifiedOomKills(counted)) => counted.kills,
            Some(JsonFacts::Summary(summary)) => summary.kills,
            _ => 0,
        }
    }

    /// `time` formats in RFC 3339 with microseconds.
    pub fn new(incident: &Incident, time: fn(SystemTime) -> String) -> Self {
        let words = incident.words();
        let occurred = &incident.occurred;
        Self {
            api_version: API_VERSION.to_owned(),
            id: incident.id.to_string(),
            revision: incident.revision,
            settled: incident.settled,
            time: time(occurred.at),
            until: (occurred.at < occurred.until).then(|| time(occurred.until)),
            object: object(incident),
            reason: words.reason.to_owned(),
            message: words.message,
            facts: facts(incident),
        }
    }

    /// Returns the object in one line, for a table.
    pub fn object_name(&self) -> String {
        let JsonObject {
            pod,
            unit,
            user_unit,
            cgroup,
            ..
        } = &self.object;
        match pod {
            Some(JsonPod {
                namespace: Some(namespace),
                name: Some(name),
                ..
            }) => format!("{namespace}/{name}"),
            Some(pod) => format!("pod {}", pod.uid),
            None => {
                if let (Some(manager), Some(unit)) = (unit, user_unit) {
                    return format!("{manager}/{unit}");
                }
                let other = unit.as_ref().or(cgroup.as_ref());
                other.cloned().unwrap_or_else(|| "node".to_owned())
            }
        }
    }

    /// Returns what happened in few words, for a table.
    pub fn summary(&self) -> String {
        let container = self.object.container.as_ref();
        let container = container.map_or_else(String::new, |name| format!("{name}: "));
        let what = match &self.facts {
            Some(JsonFacts::OomKill(kill)) => kill.summary(),
            Some(JsonFacts::UnidentifiedOomKills(counted)) => {
                let kills = units::counted(counted.kills, "OOM kill");
                format!("{kills}, victims unknown")
            }
            Some(JsonFacts::RefusedForks(refused)) => {
                let forks = units::counted(refused.forks, "fork");
                let limit = refused.limit;
                let limit = limit.map_or_else(String::new, |max| format!(", limit {max} tasks"));
                format!("{forks} refused{limit}")
            }
            Some(JsonFacts::Volume(volume)) => {
                format!(
                    "volume {} on {}: {}",
                    volume.name, volume.disk, volume.health
                )
            }
            Some(JsonFacts::Condition(change)) => {
                let details = change.details.as_deref().unwrap_or_default();
                let users = details
                    .split("; ")
                    .filter(|part| part.starts_with(USED_MOST))
                    .take(1);
                let message = [change.message.as_str()].into_iter().chain(users);
                let message = message.collect::<Vec<_>>().join("; ");
                format!("{} is {}: {message}", change.type_, change.status)
            }
            Some(JsonFacts::Boot(boot)) => {
                let (end, certainty) = (boot.end.as_str(), boot.certainty.as_str());
                let first = boot.evidence.first().map_or("", String::as_str);
                format!("last boot: {end} ({certainty}): {first}")
            }
            Some(JsonFacts::Gap(_) | JsonFacts::Summary(_)) | None => self.message.clone(),
        };
        container + &what
    }
}

impl JsonKill {
    /// Returns true if the node was out of memory.
    pub fn is_global(&self) -> bool {
        self.kill.limit.as_deref() == Some("node")
    }

    fn summary(&self) -> String {
        let size = |bytes: Option<u64>, before: &str| {
            bytes.map_or_else(String::new, |bytes| {
                format!("{before}{}", Bytes::from_bytes(bytes))
            })
        };
        let kill = &self.kill;
        let pid = self.victims.first().map(|victim| victim.pid);
        let mut text = format!("OOM kill of {}", kill.victim);
        // Writing to a String cannot fail.
        if let Some(pid) = pid {
            let _written = write!(text, " ({pid}");
            let _written = write!(text, "{})", size(kill.victim_bytes, ", "));
        }
        if 1 < kill.processes {
            let _written = write!(text, " and {} more", kill.processes - 1);
        }
        if let Some(unit) = &self.limiting_unit {
            let _written = write!(text, " at the limit of {unit}");
            return text + &size(kill.limit_bytes, ", ");
        }
        text += match kill.limit.as_deref() {
            Some("container") => " at the limit of the container",
            Some("pod") => " at the limit of the pod",
            Some("pods") => " at the limit of all pods",
            Some("cgroup") => " at a limit",
            Some("node") => "; the node was out of memory",
            Some(_) | None => "",
        };
        text += &size(kill.limit_bytes, ", ");
        text
    }
}

fn object(incident: &Incident) -> JsonObject {
    let occurred = &incident.occurred;
    let pod = match (&incident.object.pod, &occurred.pod) {
        (Some(pod), _) => Some(JsonPod {
            namespace: Some(pod.namespace.to_string()),
            name: Some(pod.name.to_string()),
            uid: pod.uid.to_string(),
        }),
        (None, Some(at)) => Some(JsonPod {
            uid: match &at.pod {
                PodId::Uid(id) | PodId::ConfigHash(id) => id.clone(),
            },
            ..JsonPod::default()
        }),
        (None, None) => None,
    };
    let path = match &occurred.occurrence {
        Occurrence::Kills(_)
        | Occurrence::Volume(_)
        | Occurrence::Condition(_)
        | Occurrence::Boot(_)
        | Occurrence::Gap(_) => None,
        Occurrence::RefusedForks(refused) => Some(&refused.cgroup),
        Occurrence::UnidentifiedKills(counted) => match &counted.place {
            KillPlace::Cgroup(path) => Some(path),
            KillPlace::NoPod | KillPlace::Unknown => None,
        },
    };
    let owner = path.filter(|_| pod.is_none());
    let owner = owner.map(|path| Owner::from_path(path, ""));
    let first = occurred.first_kill();
    let owner = first.map_or(owner.as_ref(), |first| first.unit.as_ref());
    JsonObject {
        pod,
        container: incident.container().map(str::to_owned),
        unit: owner.and_then(Owner::systemd_name),
        user_unit: owner.and_then(Owner::user_unit),
        // That of a kill is escaped.
        cgroup: match first {
            Some(first) => first.cgroup.clone(),
            None => path.map(escape),
        },
    }
}

fn facts(incident: &Incident) -> Option<JsonFacts> {
    Some(match &incident.occurred.occurrence {
        Occurrence::Kills(kills) => {
            let kill = kill_facts(incident, kills)?;
            JsonFacts::OomKill(Box::new(kill))
        }
        Occurrence::UnidentifiedKills(counted) => {
            JsonFacts::UnidentifiedOomKills(JsonUnidentifiedKills {
                kills: counted.kills,
                while_down: counted.period == Period::WhileDown,
            })
        }
        Occurrence::RefusedForks(refused) => JsonFacts::RefusedForks(fork_facts(refused)),
        Occurrence::Volume(trouble) => JsonFacts::Volume(JsonVolume {
            name: escape(&trouble.volume),
            disk: escape(&trouble.disk),
            health: trouble.trouble.as_str().to_owned(),
            details: trouble.details.clone(),
        }),
        Occurrence::Condition(change) => JsonFacts::Condition(JsonCondition {
            type_: change.type_.clone(),
            status: change.status.as_str().to_owned(),
            reason: change.reason.clone(),
            message: change.message.clone(),
            details: change.details.clone(),
            ended: change.ended.map(|id| id.to_string()),
        }),
        Occurrence::Boot(end) => JsonFacts::Boot(end.clone()),
        Occurrence::Gap(gap) => JsonFacts::Gap(*gap),
    })
}

fn kill_facts(incident: &Incident, kills: &Kills) -> Option<JsonKill> {
    let (kill, first) = (incident.oom_kill()?, kills.first()?);
    let (effect, verdict) = first.verdict.as_strs();
    let victim = |one: &Finding| JsonVictim {
        pid: one.victim.0,
        name: one.comm.clone(),
        uid: one.uid,
        bytes: one.resident_sum().map(Bytes::get),
    };
    Some(JsonKill {
        kill: OomKill {
            // It is in the object.
            container: None,
            ..kill
        },
        victims: kills.findings.iter().take(VICTIMS).map(victim).collect(),
        trigger: first.trigger.clone(),
        limiting_cgroup: first.limiting().map(str::to_owned),
        limiting_unit: limiting_unit(first),
        node_pressure: effect == "node pressure",
        verdict: verdict.to_owned(),
        memory_users: incident.memory_users(),
    })
}

/// Returns the systemd unit, slice or session whose limit was reached.
pub fn limiting_unit(kill: &Finding) -> Option<String> {
    let limiting = kill.scope.as_ref().memcg()?;
    let owner = limiting.unit.as_ref()?;
    let of_user = owner.user_unit().map(|_| owner.to_string());
    of_user.or_else(|| owner.systemd_name())
}

fn fork_facts(refused: &RefusedForks) -> JsonForks {
    let limit = refused.limit.as_ref();
    JsonForks {
        forks: refused.forks,
        limit: limit.map(|(_, _, max)| *max),
        limiting_cgroup: limit.map(|(path, _, _)| escape(path)),
        tasks: refused.tasks,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;
    use crate::incident::{Object, Occurred, by_cause};
    use crate::kube_event::{
        ContainerLabel, DiskTrouble, Limiting, UnidentifiedKills, VictimOwner, VolumeTrouble,
    };
    use crate::node_status::Status;
    use crate::node_status::ledger::ConditionChange;
    use crate::pods::{CgroupKind, Container, Pod, PodRef};
    use crate::reading::oom::{Consequence, LimitOwner, OomScope};
    use crate::tests::{finding, incident, now};

    const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");

    fn time(at: SystemTime) -> String {
        let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap();
        format!("{}s", since.as_secs())
    }

    fn occurred(occurrence: Occurrence) -> Occurred {
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(5);
        Occurred {
            pod: None,
            at,
            until: at,
            stamp: None,
            kills: crate::kube_event::ReportedKills::default(),
            occurrence,
        }
    }

    fn in_pod() -> Object {
        Object {
            pod: Pod::new("shop", "web-0", "aa", None),
            container: Container::new(None, "web").map(ContainerLabel::Name),
            is_resolved: true,
        }
    }

    fn kill() -> Incident {
        let mut first = finding(7);
        first.owner = VictimOwner::Pod(PodRef {
            pod: PodId::Uid("aa".to_owned()),
            container: None,
        });
        first.comm = "java\\n".to_owned();
        first.uid = Some(1000);
        first.cgroup = Some("/kubepods/podaa/c".to_owned());
        first.trigger = Some("process 9 (sh)".to_owned());
        first.consequence = Some(Consequence::ChildProcess);
        first.resident = Some([60, 3, 1].map(|mib| Bytes::from_kib(mib << 10)));
        first.scope = OomScope::Memcg(Limiting {
            owner: LimitOwner::Container,
            path: Some("/kubepods/podaa/c".to_owned()),
            tied: None,
            usage: Some((Bytes::from_kib(1 << 16), Bytes::from_kib(1 << 16))),
            unit: None,
        });
        let mut second = finding(8);
        second.cause = first.cause;
        let mut incident = incident(by_cause(vec![first, second], now(9)).remove(0));
        incident.object = in_pod();
        incident.settled = true;
        incident.revision = 3;
        incident
    }

    fn all() -> Vec<Incident> {
        let mut forks = incident(occurred(Occurrence::RefusedForks(RefusedForks {
            cgroup: "/kubepods/podaa/c\u{1b}".to_owned(),
            forks: 2,
            limit: Some(("/kubepods/podaa".to_owned(), CgroupKind::Pods, 64)),
            tasks: Some(60),
        })));
        forks.object = in_pod();
        let counted = incident(occurred(Occurrence::UnidentifiedKills(UnidentifiedKills {
            place: KillPlace::Cgroup("/system.slice/a.service".to_owned()),
            kills: 3,
            period: Period::WhileDown,
        })));
        let volume = incident(occurred(Occurrence::Volume(VolumeTrouble {
            disk: "sdb".to_owned(),
            volume: "a\nb".to_owned(),
            trouble: DiskTrouble::Slow,
            details: "5 of 6 requests".to_owned(),
        })));
        let mut unit = finding(9);
        unit.unit = Some(Owner::Unit {
            name: "a\u{1b}.service".to_owned(),
            user: None,
        });
        unit.scope = OomScope::Memcg(Limiting {
            owner: LimitOwner::Other,
            path: Some("/user.slice/user-7.slice".to_owned()),
            tied: None,
            usage: None,
            unit: Some(Owner::Slice("user-7.slice".to_owned())),
        });
        let service = incident(by_cause(vec![unit], now(9)).remove(0));
        let mut imitation = finding(9);
        let of_user = Some(Owner::Unit {
            name: "sshd.service".to_owned(),
            user: Some(7),
        });
        imitation.unit = of_user.clone();
        imitation.scope = OomScope::Memcg(Limiting {
            owner: LimitOwner::Other,
            path: None,
            tied: None,
            usage: None,
            unit: of_user,
        });
        let imitation = incident(by_cause(vec![imitation], now(9)).remove(0));
        let change = ConditionChange {
            type_: "MemoryLow".to_owned(),
            status: Status::True,
            reason: "MemoryBelowThreshold".to_owned(),
            message: "memory is low".to_owned(),
            details: Some("largest users".to_owned()),
            ended: Some(kill().id),
        };
        let slow = ConditionChange {
            type_: "DiskIOPressure".to_owned(),
            reason: "SlowDisk".to_owned(),
            message: "slow disk: sda".to_owned(),
            details: Some(
                "5 of 6 requests took over 1s; used most by a.service (1 MB/s written), b.service \
                      (4 kB/s read); waiting most: b.service (70% of the time)"
                    .to_owned(),
            ),
            ..change.clone()
        };
        let slow = incident(Occurred::condition(slow, None, now(9)));
        let condition = incident(Occurred::condition(change, None, now(9)));
        let boot = incident(crate::black_box::tests::panic());
        let gap = AgentGap {
            stopped: false,
            seconds: 9,
        };
        let gap = incident(Occurred::gap(gap, Duration::from_secs(9), now(10)));
        vec![
            kill(),
            forks,
            counted,
            volume,
            service,
            imitation,
            condition,
            slow,
            boot,
            gap,
        ]
    }

    #[test]
    fn the_form_of_a_kill_has_all_that_is_known() {
        let json = serde_json::to_value(JsonIncident::new(&kill(), time)).unwrap();
        let expected = json!({
            "apiVersion": "nodepulse.dev/incident/v1",
            "id": kill().id.to_string(),
            "revision": 3,
            "settled": true,
            "time": "7s",
            "until": "8s",
            "object": {
                "pod": {"namespace": "shop", "name": "web-0", "uid": "aa"},
                "container": "web",
                "cgroup": "/kubepods/podaa/c",
            },
            "reason": "OOMKilled",
            "message": kill().words().message,
            "kind": "OOMKill",
            "facts": {
                "limit": "container",
                "limitBytes": 64 << 20,
                "usedBytes": 64 << 20,
                "processes": 2,
                "victim": "java\\n",
                "victimBytes": 64 << 20,
                "victims": [
                    {"pid": 7, "name": "java\\n", "uid": 1000, "bytes": 64 << 20},
                    {"pid": 8, "name": "p8"},
                ],
                "trigger": "process 9 (sh)",
                "limitingCgroup": "/kubepods/podaa/c",
                "nodePressure": false,
                "verdict": json["facts"]["verdict"],
            },
        });
        let mut expected = expected;
        expected["facts"]
            .as_object_mut()
            .unwrap()
            .remove("consequence");
        assert_eq!(json, expected);
        assert!(
            json["message"].as_str().unwrap().contains("container web"),
            "{json:#}"
        );
    }

    #[test]
    fn the_table_names_object_and_cause_of_each_kind_without_control_characters() {
        let row = |incident: &Incident| {
            let json = JsonIncident::new(incident, time);
            (json.object_name(), json.summary())
        };
        let rows: Vec<_> = all().iter().map(row).collect();
        let rows: Vec<(&str, &str)> = rows.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        #[rustfmt::skip]
        assert_eq!(rows, [
            ("shop/web-0", "web: OOM kill of java\\n (7, 64.0Mi) and 1 more at the limit of the container, 64.0Mi"),
            ("shop/web-0", "web: 2 forks refused, limit 64 tasks"),
            ("a.service", "3 OOM kills, victims unknown"),
            ("node", "volume a\\nb on sdb: slow"),
            ("a\\u{1b}.service", "OOM kill of p9 (9) at the limit of user-7.slice"),
            ("user@7.service/sshd.service", "OOM kill of p9 (9) at the limit of sshd.service of user 7"),
            ("node", "MemoryLow is True: memory is low"),
            ("node", "DiskIOPressure is True: slow disk: sda; used most by a.service (1 MB/s written), b.service (4 kB/s read)"),
            ("node", "last boot: KernelPanic (certain): dmesg.txt: Kernel panic - not syncing: \\u{1b}Oops"),
            ("node", "The agent was killed or failed within the 9 s before its next start"),
        ]);
    }

    #[test]
    fn a_condition_that_becomes_true_has_its_causes() {
        let all = all();
        let [.., low, slow, _, _] = all.as_slice() else {
            panic!("{all:?}");
        };
        let form = |incident| serde_json::to_value(JsonIncident::new(incident, time)).unwrap();
        let (low, slow) = (form(low), form(slow));
        let known = "MemoryLow is True: MemoryBelowThreshold (memory is low); largest users";
        assert_eq!(
            (&low["message"], &low["facts"]["details"]),
            (&known.into(), &"largest users".into())
        );
        let details = slow["facts"]["details"].as_str().unwrap();
        let message = format!("DiskIOPressure is True: SlowDisk (slow disk: sda); {details}");
        assert_eq!(slow["message"], message);
    }

    #[test]
    fn every_form_is_read_again_and_a_kind_of_a_newer_version_without_its_facts() {
        for incident in all() {
            let json = JsonIncident::new(&incident, time);
            let text = serde_json::to_string(&json).unwrap();
            assert_eq!(serde_json::from_str::<JsonIncident>(&text).unwrap(), json);
            let kind = json.kind().unwrap();
            assert!(text.contains(&format!("\"kind\":\"{kind}\"")), "{text}");
            let newer = text.replace("\"kind\":\"", "\"kind\":\"New");
            let newer: JsonIncident = serde_json::from_str(&newer).unwrap();
            assert_eq!(
                (newer.facts.is_none(), &newer.message),
                (true, &json.message)
            );
        }
    }

    #[test]
    fn the_schema_and_the_examples_of_the_documentation_are_those_of_the_type() {
        let schema = serde_json::to_value(schemars::schema_for!(JsonIncident)).unwrap();
        let schema = format!("{schema:#}\n");
        let path = format!("{DOCS}/incident.schema.json");
        if std::env::var_os("NODEPULSE_WRITE_SCHEMA").is_some() {
            fs::write(&path, &schema).unwrap();
        }
        let how = "NODEPULSE_WRITE_SCHEMA=1 cargo test -p nodepulse-core schema";
        assert_eq!(
            fs::read_to_string(path).unwrap(),
            schema,
            "write it with: {how}"
        );

        let page = fs::read_to_string(format!("{DOCS}/incidents.md")).unwrap();
        let mut kinds = std::collections::BTreeSet::new();
        for block in page.split("```json\n").skip(1) {
            let (text, _) = block.split_once("```").unwrap();
            let value: Value = serde_json::from_str(text).unwrap();
            let json: JsonIncident = serde_json::from_value(value.clone()).unwrap();
            assert_eq!(serde_json::to_value(&json).unwrap(), value, "{text}");
            kinds.insert(value["kind"].as_str().unwrap().to_owned());
            assert!(json.facts.is_some(), "{text}");
        }
        let expected = all().into_iter().map(|incident| {
            let json = serde_json::to_value(JsonIncident::new(&incident, time)).unwrap();
            json["kind"].as_str().unwrap().to_owned()
        });
        // Only a cursor makes it.
        let expected = expected.chain(["Summary".to_owned()]);
        assert_eq!(kinds, expected.collect(), "an example of each kind");
    }
}
