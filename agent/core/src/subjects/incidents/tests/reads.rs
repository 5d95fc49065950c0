//! Bounds of the reads of pods.

use super::*;

#[test]
fn at_most_so_many_pods_are_read_at_the_same_time() {
    let mut incidents = Incidents::new(NodeEvents::Kubelet);
    incidents.on(In::ServerAnswered, at(0));
    let mut reads = 0;
    for n in 0..=MAX_READS {
        let uid = format!("{n:x}");
        incidents.on(present(&uid), at(0));
        let effects = without_links(&mut incidents, happened(kill(&uid, Some("c"))), at(0));
        reads += usize::from(matches!(
            effects.first(),
            Some(Then::Other(Effect::ReadContainers(_)))
        ));
    }
    assert_eq!(reads, MAX_READS);
    incidents.on(unnamed("0", ReadFailure::Other), at(1));
    let effects = without_links(&mut incidents, happened(kill("20", Some("c"))), at(1));
    let expected = ["read pod-20", "1 in pod-0", "on pod-0 -"];
    assert_eq!(short(&effects), expected, "there is room again");
}

#[test]
fn containers_are_named_by_their_ids_if_too_many_pods_were_read() {
    let mut incidents = Incidents::new(NodeEvents::Kubelet);
    incidents.on(In::ServerAnswered, at(0));
    for n in 0..names::MAX_REMEMBERED {
        let uid = format!("{n:x}");
        incidents.on(present(&uid), at(0));
        let effects = without_links(&mut incidents, happened(kill(&uid, Some("c"))), at(0));
        assert!(
            matches!(effects[..], [Then::Other(Effect::ReadContainers(_))]),
            "{n}: {effects:?}"
        );
        incidents.on(unnamed(&uid, ReadFailure::Other), at(0));
        incidents.on(DUE, at(0));
    }
    incidents.on(present("new"), at(0));
    let happens = |incidents: &mut Incidents, ms| {
        let killed = happened(kill("new", Some("c")));
        short(&without_links(incidents, killed, at(ms)))
    };
    let unread = ["1 in pod-new", "on pod-new -"];
    assert_eq!(happens(&mut incidents, 999), unread);
    assert_eq!(happens(&mut incidents, 1000), ["read pod-new"], "forgotten");
}
