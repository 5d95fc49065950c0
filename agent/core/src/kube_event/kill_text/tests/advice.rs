//! Advice in the message about a kill.

use super::*;

#[test]
fn the_message_contains_what_can_be_done() {
    use LimitOwner::{Container, Other, Pod, PodsCgroup};
    let advice = |what, limit| {
        format!("If the {what} needs more memory, raise {limit}resources.limits.memory).")
    };
    let set = |container, pod| Some(crate::pods::MemoryLimits { container, pod });
    let container = advice("container", "its limit (");
    let pod = advice("pod", "the limits of its containers (");
    let whole = advice("pod", "its limit (spec.");
    let pods = format!("The limit that was reached is not the pod's own. {PODS_ARE_SHORT}");
    #[rustfmt::skip]
    let rows = [
        (Container, None, None, Some(&container)),
        (Container, Some(Container), None, Some(&container)),
        (Container, None, set(true, false), Some(&container)),
        (Container, None, set(true, true), Some(&container)),
        (Container, None, set(false, true), Some(&whole)),
        (Container, Some(Pod), None, Some(&pod)),
        (Container, Some(Pod), set(false, true), Some(&whole)),
        (Pod, None, None, Some(&pod)),
        (Pod, None, set(true, false), Some(&pod)),
        (Pod, None, set(true, true), Some(&whole)),
        (Pod, Some(PodsCgroup), None, Some(&pod)),
        (PodsCgroup, None, set(false, true), Some(&pods)),
        (Other, None, None, None),
    ];
    for (owner, tied, limits, expected) in rows {
        let limiting = Limiting {
            owner,
            tied: tied.map(|owner| (owner, "/b".to_owned())),
            ..at("/a")
        };
        let finding = Finding {
            scope: OomScope::Memcg(limiting),
            ..finding(7, None, None)
        };
        let container = crate::pods::Container {
            limits,
            ..crate::pods::Container::new(None, "web").unwrap()
        };
        let kills = Kills::from(vec![finding.clone()]);
        let found = finding.advice(&kills, Some(&container), None);
        assert_eq!(found.as_ref(), expected, "{owner:?}, {tied:?}, {limits:?}");
    }
}

#[test]
fn the_advice_for_a_kill_at_the_limit_of_a_unit_names_that_limit() {
    //  path of the limit, what is to be raised
    #[rustfmt::skip]
    let rows = [
        ("/system.slice/hog.service", Some("MemoryMax= of hog.service")),
        ("/user.slice/user-7.slice/session-3.scope", Some("MemoryMax= of session-3.scope")),
        ("/system.slice", Some("MemoryMax= of system.slice")),
        // Its service can set this limit, and systemd cannot.
        ("/system.slice/hog.service/a", Some("the memory limit of cgroup system.slice/hog.service/a")),
        ("/docker/0123", Some("the memory limit of cgroup docker/0123")),
        // The kubelet sets these.
        ("/kubepods.slice/kubepods-burstable.slice", None),
        ("/kubepods.slice/burstable", None),
    ];
    for (path, raised) in rows {
        let limiting = Limiting {
            unit: Owner::of_limit(path, "/kubepods.slice"),
            ..at(path)
        };
        let by_unit = limiting
            .unit
            .clone()
            .filter(|of| of.systemd_name().is_some());
        let finding = Finding {
            cgroup: Some(path.to_owned()),
            unit: by_unit.clone(),
            scope: OomScope::Memcg(limiting),
            ..finding(7, None, None)
        };
        let advice = raised.map_or_else(String::new, |raised| {
            format!("Raise {raised} or reduce what it uses. ")
        });
        let (place, limit) = match by_unit {
            Some(unit) => (unit.to_string(), unit.to_string()),
            None => (format!("cgroup {path}"), "that cgroup".to_owned()),
        };
        let expected = format!(
            "Process 7 (p7) in {place} was killed because {limit} reached its memory limit. \
             {advice}Process 7 (p7): "
        );
        let message = on_node(&vec![finding].into(), None, None);
        assert!(message.starts_with(&expected), "{expected}: {message}");
    }
}
