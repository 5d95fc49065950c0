//! The log line of each incident, for those who read no Events: written once, when the incident is
//! settled, with everything that is known about it.

use nodepulse_core::escape::{escape, quote, quoted};
use nodepulse_core::incident::{Incident, Occurrence};
use nodepulse_core::kube_event::KillPlace;
use nodepulse_core::pods::Owner;
use nodepulse_core::units::Bytes;
use tracing::{info, warn};

pub fn log(incident: &Incident) {
    let (id, pod, container) = (incident.id, pod(incident), incident.container());
    match &incident.occurred.occurrence {
        Occurrence::Kills(_) => log_kills(incident),
        Occurrence::UnidentifiedKills(counted) => {
            let cgroup = match &counted.place {
                KillPlace::Cgroup(cgroup) => escape(cgroup),
                KillPlace::NoPod => "outside the pods".to_owned(),
                KillPlace::Unknown => "unknown".to_owned(),
            };
            let kills = counted.kills;
            info!(kills, pod, cgroup, %id, "OOM kills without a record, reported as a count");
        }
        Occurrence::RefusedForks(refused) => info!(
            forks = refused.forks,
            pod,
            container,
            cgroup = escape(&refused.cgroup),
            limit = refused.limit_of_cgroup(),
            %id,
            "forks refused at the limit on tasks"
        ),
        // Logged with the decision from which it follows.
        Occurrence::Condition(_) => {}
        Occurrence::Boot(end) => {
            let (verdict, certainty) = (end.end.as_str(), end.certainty.as_str());
            let (boot, message) = (&end.boot, end.words().message);
            if end.is_unclean() {
                warn!(end = verdict, certainty, %boot, message, %id, "the last boot ended uncleanly");
            } else {
                info!(end = verdict, certainty, %boot, message, %id, "the last boot ended");
            }
        }
        Occurrence::Gap(gap) => {
            let message = gap.words().message;
            if gap.stopped {
                info!(seconds = gap.seconds, message, %id, "no agent ran");
            } else {
                warn!(seconds = gap.seconds, message, %id, "the last agent was not stopped");
            }
        }
        Occurrence::Volume(trouble) => {
            info!(
                pod,
                volume = %quote(&trouble.volume),
                disk = %quote(&trouble.disk),
                health = trouble.trouble.as_str(),
                details = %trouble.details,
                %id,
                "volume on an unhealthy disk"
            );
        }
    }
}

fn log_kills(incident: &Incident) {
    let (Some(kill), Some(first)) = (incident.oom_kill(), incident.occurred.first_kill()) else {
        return;
    };
    let (effect, reason) = first.verdict.as_strs();
    let users = incident.memory_users().into_iter();
    let users =
        users.map(|user| format!("{} {}", quoted(&user.name), Bytes::from_bytes(user.bytes)));
    let users: Vec<String> = users.collect();
    info!(
        processes = kill.processes,
        pod = pod(incident),
        container = kill.container,
        consequence = kill.consequence,
        limit = kill.limit,
        limit_bytes = kill.limit_bytes,
        used_bytes = kill.used_bytes,
        pid = first.victim.0,
        victim = kill.victim,
        victim_bytes = kill.victim_bytes,
        uid = first.uid,
        trigger = first.trigger,
        unit = first.unit.as_ref().and_then(Owner::systemd_name),
        cgroup = first.cgroup,
        limiting = first.limiting(),
        largest = (!users.is_empty()).then(|| users.join(", ")),
        effect,
        reason,
        id = %incident.id,
        "OOM kill"
    );
}

/// Returns namespace and name of the pod; its UID if they are not known.
fn pod(incident: &Incident) -> Option<String> {
    if let Some(pod) = &incident.object.pod {
        return Some(format!("{}/{}", pod.namespace, pod.name));
    }
    let pod = incident.occurred.pod.as_ref()?;
    Some(pod.pod.as_str().to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use nodepulse_core::clock::{BootNanos, Now, Stamp};
    use nodepulse_core::incident::{BootId, IncidentId, Object, Occurred, by_cause};
    use nodepulse_core::kube_event::{
        Cause, ContainerLabel, DiskTrouble, Finding, KillDetails, KillOwner, Limiting, Period,
        RefusedForks, ReportedKills, UnidentifiedKills, VictimOwner, VolumeTrouble,
    };
    use nodepulse_core::pods::{Container, Pod, PodId, PodRef};
    use nodepulse_core::pressure::oom::{Doubt, KillVerdict};
    use nodepulse_core::reading::memory_use::{LargestProcesses, ProcessSize};
    use nodepulse_core::reading::oom::{Consequence, LimitOwner, OomScope};
    use nodepulse_core::units::Pid;

    use super::super::decisions::tests::logged_by;
    use super::*;

    const ID: &str = "00000000-0000-0000-0000-000000000001-7";

    fn incident(occurred: Occurred) -> Incident {
        Incident {
            id: IncidentId {
                boot: BootId(1),
                number: 7,
            },
            revision: 3,
            settled: true,
            added: 0,
            object: Object {
                pod: Pod::new("shop", "web-0", "aa", None),
                container: Container::new(None, "web").map(ContainerLabel::Name),
                is_resolved: true,
            },
            occurred,
            details: None,
        }
    }

    fn occurred(occurrence: Occurrence) -> Occurred {
        Occurred {
            pod: None,
            at: SystemTime::UNIX_EPOCH,
            until: SystemTime::UNIX_EPOCH,
            stamp: None,
            kills: ReportedKills::default(),
            occurrence,
        }
    }

    fn kill() -> Incident {
        let mib = |mib: u64| Bytes::from_kib(mib << 10);
        let pod = PodId::Uid("aa".to_owned());
        let at = BootNanos(7);
        let finding = Finding {
            stamp: Stamp {
                kernel: at,
                read: at,
            },
            cause: Cause::default(),
            victim: Pid(4321),
            comm: "java\\n".to_owned(),
            uid: Some(1000),
            uid_in_namespace: None,
            cgroup: Some("/kubepods/podaa/c".to_owned()),
            owner: VictimOwner::Pod(PodRef {
                pod: pod.clone(),
                container: None,
            }),
            unit: None,
            counter: KillOwner::Pod(pod),
            scope: OomScope::Memcg(Limiting {
                owner: LimitOwner::Container,
                path: Some("/kubepods/podaa/c".to_owned()),
                tied: None,
                usage: Some((mib(64), mib(64))),
                unit: None,
            }),
            resident: Some([mib(60), Bytes::default(), Bytes::default()]),
            trigger: Some("process 9 (sh)".to_owned()),
            trigger_container: None,
            consequence: Some(Consequence::ChildProcess),
            group: None,
            verdict: KillVerdict::EventOnly {
                why: Doubt::LocalLimit(LimitOwner::Container),
            },
        };
        let now = Now {
            boot: at,
            wall: SystemTime::UNIX_EPOCH,
        };
        let mut incident = incident(by_cause(vec![finding], now).remove(0));
        incident.details = Some(KillDetails {
            processes: LargestProcesses {
                largest: vec![ProcessSize {
                    pid: Pid(9),
                    comm: "sh".to_owned(),
                    resident: mib(2),
                }],
                compared: 1,
                is_partial: false,
            },
            ..KillDetails::default()
        });
        incident
    }

    #[test]
    fn a_settled_incident_is_one_line_with_everything_that_is_known() {
        let forks = Occurrence::RefusedForks(RefusedForks {
            cgroup: "/kubepods/podaa/c\u{1b}".to_owned(),
            forks: 2,
            limit: None,
            tasks: None,
        });
        let counted = Occurrence::UnidentifiedKills(UnidentifiedKills {
            place: KillPlace::NoPod,
            kills: 3,
            period: Period::Now,
        });
        let volume = Occurrence::Volume(VolumeTrouble {
            disk: "sdb".to_owned(),
            volume: "a\nb".to_owned(),
            trouble: DiskTrouble::Slow,
            details: "5 of 6 requests".to_owned(),
        });
        #[rustfmt::skip]
        let rows = [
            (kill(), format!(
                "INFO OOM kill processes=1 pod=\"shop/web-0\" container=\"web\" consequence=\"child_process\" \
                 limit=\"container\" limit_bytes=67108864 used_bytes=67108864 pid=4321 victim=\"java\\\\n\" \
                 victim_bytes=62914560 uid=1000 trigger=\"process 9 (sh)\" cgroup=\"/kubepods/podaa/c\" \
                 limiting=\"/kubepods/podaa/c\" largest=\"sh 2.0Mi\" effect=\"event only\" \
                 reason=\"limit of a container\" id={ID}"
            )),
            (incident(occurred(forks)), format!(
                "INFO forks refused at the limit on tasks forks=2 pod=\"shop/web-0\" container=\"web\" \
                 cgroup=\"/kubepods/podaa/c\\\\u{{1b}}\" limit=\"its limit is not known\" id={ID}"
            )),
            (incident(occurred(counted)), format!(
                "INFO OOM kills without a record, reported as a count kills=3 pod=\"shop/web-0\" \
                 cgroup=\"outside the pods\" id={ID}"
            )),
            (incident(occurred(volume)), format!(
                "INFO volume on an unhealthy disk pod=\"shop/web-0\" volume=a\\nb disk=sdb health=\"slow\" \
                 details=5 of 6 requests id={ID}"
            )),
        ];
        for (incident, expected) in rows {
            assert_eq!(logged_by(|| log(&incident)).trim(), expected);
        }
    }
}
