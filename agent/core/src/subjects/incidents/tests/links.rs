//! Names of containers from the links that a kubelet makes.

use super::*;
use crate::pods::LinkSearch;

const ID: &str = "3b5c8d0f1e2a4b6c8d0f1e2a4b6c8d0f1e2a4b6c8d0f1e2a4b6c8d0f1e2a4b6c";
const OTHER: &str = "8d0f1e2a4b6c3b5c8d0f1e2a4b6c3b5c8d0f1e2a4b6c3b5c8d0f1e2a4b6c3b5c";
const HASH: &str = "a9f3c1d20b8e4f5a96d7c8b1e2f30415";

/// The answer of a directory with links of these names: `<pod>_<namespace>_<container>`, and the
/// id.
fn links(names: &[(&str, &str)]) -> Input {
    let ids = names.iter().map(|(_, id)| (*id).into()).collect();
    let mut search = LinkSearch::new(&ids);
    for (name, id) in names {
        search.add(&format!("{name}-{id}.log"));
    }
    In::Links(LinksRead::Found(search.found())).into()
}

fn web() -> Input {
    links(&[("pod-aa_shop_web", ID)])
}

fn none() -> Input {
    links(&[])
}

fn unavailable() -> Input {
    In::Links(LinksRead::Unavailable).into()
}

fn killed(uid: &str) -> Input {
    happened(kill(uid, Some(ID)))
}

/// Its specification, without the id of any container.
fn specified(uid: &str, list: ContainerList, name: &str) -> Input {
    let mut containers = Containers::default();
    containers.specify(Container::new(Some(list), name).unwrap());
    read(uid, Ok(containers))
}

/// What follows, with the container as the message names it, and whether `fieldPath` has its list.
fn text(effect: &Then) -> String {
    let draft = match effect {
        Then::Other(Effect::BlockingQuery(BlockingQuery::ContainerLinks(_))) => {
            return "links".to_owned();
        }
        Then::Event(draft) => draft,
        other @ Then::Other(_) => return short(std::slice::from_ref(other)).concat(),
    };
    let Involved::Pod {
        name, field_path, ..
    } = &draft.object
    else {
        return "on the node".to_owned();
    };
    let (_, container) = draft.message.split_once(" in container ").unwrap();
    let (container, _) = container.split_once(':').unwrap();
    match field_path {
        Some(path) => format!("on {name} {path}"),
        None => format!("on {name} {container}"),
    }
}

fn play_all(rows: Vec<(&str, Vec<Step>)>) {
    for (row, steps) in rows {
        let mut incidents = Incidents::new(NodeEvents::Kubelet);
        incidents.on(In::ServerAnswered, at(0));
        for (ms, input, expected, due) in steps {
            let name = format!("{row}: {input:?} at {ms} ms");
            let effects = incidents.on(input, at(ms));
            let texts: Vec<_> = effects.iter().map(text).collect();
            assert_eq!(texts, expected, "{name}");
            assert_eq!(incidents.due(), due.map(|ms| at(ms).boot), "{name}");
        }
    }
}

#[rustfmt::skip]
#[test]
fn the_link_of_a_container_names_it_and_its_pod() {
    use ContainerList::Init;
    const IN_LIST: &[&str] = &["1 in pod-aa", "on pod-aa spec.initContainers{web}"];
    play_all(vec![
        ("the watch has not reported the pod", vec![
            (0, killed("aa"), &["links"], Some(50)),
            (1, web(), &["on pod-aa web"], None),
            (2, killed("aa"), &["on pod-aa web"], None),
            (3, present("aa"), &["2 in pod-aa"], None),
            (4, killed("aa"), &["read pod-aa"], Some(254)),
        ]),
        ("the pod is read once, for the list that contains the container", vec![
            (0, present("aa"), &[], None),
            (0, killed("aa"), &["read pod-aa", "links"], Some(50)),
            (1, web(), &[], Some(250)),
            (2, specified("aa", Init, "web"), &[], Some(250)),
            (2, DUE, IN_LIST, None),
            (3, killed("aa"), IN_LIST, None),
            (4, happened(kill("aa", Some(OTHER))), &["links"], Some(54)),
            (5, links(&[("pod-aa_shop_web", OTHER)]), IN_LIST, None),
        ]),
        ("the API server does not answer", vec![
            (0, present("aa"), &[], None),
            (0, killed("aa"), &["read pod-aa", "links"], Some(50)),
            (1, web(), &[], Some(250)),
            (250, DUE, &["1 in pod-aa", "on pod-aa web"], None),
            (251, unnamed("aa", ReadFailure::Other), &[], None),
            (260, killed("aa"), &["1 in pod-aa", "on pod-aa web"], None),
        ]),
        ("the pod is removed", vec![
            (0, present("aa"), &[], None),
            (0, removed("aa"), &["pod-aa removed"], None),
            (0, killed("aa"), &["links"], Some(50)),
            (1, web(), &["on pod-aa web"], None),
            (2, happened(kill("aa", Some(OTHER))), &["links"], Some(52)),
            (3, none(), &["on pod-aa 8d0f1e2a4b6c"], None),
        ]),
        ("pods cannot be watched", vec![
            (0, changed(PodChange::Refused), &[], None),
            (0, killed("aa"), &["links"], Some(50)),
            (1, web(), &["on pod-aa web"], None),
        ]),
        ("the agent stops", vec![
            (0, killed("aa"), &["links"], Some(50)),
            (1, happened(kill("aa", Some(OTHER))), &[], Some(50)),
            (2, web(), &["on pod-aa web", "links"], Some(51)),
            (3, STOPPING, &["on the node"], None),
        ]),
    ]);
}

#[rustfmt::skip]
#[test]
fn a_link_that_does_not_exist_yet_is_read_again_until_the_deadline() {
    use ContainerList::Containers;
    const IN_LIST: &[&str] = &["1 in pod-aa", "on pod-aa spec.containers{web}"];
    play_all(vec![
        ("the API server does not know the container either", vec![
            (0, present("aa"), &[], None),
            (0, killed("aa"), &["read pod-aa", "links"], Some(50)),
            (1, none(), &[], Some(26)),
            (2, specified("aa", Containers, "web"), &[], Some(26)),
            (2, DUE, &[], Some(26)),
            (26, DUE, &["links"], Some(250)),
            (27, none(), &[], Some(54)),
            (54, DUE, &["links"], Some(250)),
            (55, web(), IN_LIST, None),
        ]),
        ("nothing has the name", vec![
            (0, present("aa"), &[], None),
            (0, killed("aa"), &["read pod-aa", "links"], Some(50)),
            (1, none(), &[], Some(26)),
            (2, unnamed("aa", ReadFailure::Other), &[], Some(26)),
            (200, DUE, &["links"], Some(250)),
            (201, none(), &[], Some(250)),
            (250, DUE, &["1 in pod-aa", "on pod-aa 3b5c8d0f1e2a"], None),
        ]),
        ("the API server has it first", vec![
            (0, present("aa"), &[], None),
            (0, killed("aa"), &["read pod-aa", "links"], Some(50)),
            (1, none(), &[], Some(26)),
            (5, named("aa", ID), &[], Some(26)),
            (5, DUE, IN_LIST, None),
        ]),
        ("the watch has not reported the pod", vec![
            (0, killed("aa"), &["links"], Some(50)),
            (1, none(), &[], Some(26)),
            (1900, DUE, &["links"], Some(2000)),
            (1901, none(), &[], Some(2000)),
            (2000, DUE, &["on the node"], None),
        ]),
        ("pods cannot be watched", vec![
            (0, changed(PodChange::Refused), &[], None),
            (0, killed("aa"), &["links"], Some(50)),
            (1, none(), &[], Some(26)),
            (26, DUE, &["links"], Some(250)),
            (250, DUE, &["on the node"], None),
            (251, none(), &[], None),
        ]),
    ]);
}

#[rustfmt::skip]
#[test]
fn a_directory_that_does_not_answer_delays_no_event_for_long() {
    play_all(vec![("hung", vec![
        (0, present("aa"), &[], None),
        (0, killed("aa"), &["read pod-aa", "links"], Some(50)),
        (50, DUE, &[], Some(250)),
        (52, named("aa", ID), &[], Some(250)),
        (52, DUE, &["1 in pod-aa", "on pod-aa spec.containers{web}"], None),
        // Nothing is asked while the read is under way.
        (60, present("bb"), &[], None),
        (60, happened(kill("bb", Some(OTHER))), &["read pod-bb"], Some(110)),
        (110, DUE, &[], Some(310)),
        (111, unnamed("bb", ReadFailure::Other), &[], Some(310)),
        (310, DUE, &["1 in pod-bb", "on pod-bb 8d0f1e2a4b6c"], None),
        (5000, unavailable(), &[], None),
        (5001, happened(kill("bb", Some(OTHER))), &["read pod-bb", "links"], Some(5051)),
        (5002, unavailable(), &[], Some(5251)),
    ])]);
}

#[rustfmt::skip]
#[test]
fn a_link_counts_only_if_the_watch_does_not_contradict_it() {
    let other_name = links(&[("pod-bb_shop_web", ID)]);
    let other_namespace = links(&[("pod-aa_kube-system_web", ID)]);
    let contradicted = |link| vec![
        (0, present("aa"), &[] as &'static [&'static str], None),
        (0, killed("aa"), &["read pod-aa", "links"], Some(50)),
        (1, link, &[], Some(250)),
        (2, unnamed("aa", ReadFailure::Other), &[], Some(250)),
        (2, DUE, &["1 in pod-aa", "on pod-aa 3b5c8d0f1e2a"], None),
    ];
    play_all(vec![
        ("another pod", contradicted(other_name)),
        ("another namespace", contradicted(other_namespace)),
        ("two links", vec![
            (0, killed("aa"), &["links"], Some(50)),
            (1, links(&[("pod-aa_shop_web", ID), ("pod-bb_shop_web", ID)]), &[], Some(26)),
            (2000, DUE, &["on the node"], None),
        ]),
    ]);
}

#[rustfmt::skip]
#[test]
fn a_static_pod_is_waited_for_because_its_link_does_not_have_the_uid_of_its_mirror() {
    let mirror = || {
        let mirror = Pod::new("kube-system", "etcd-worker-1", "u1", Some(HASH));
        changed(PodChange::Present(mirror.unwrap()))
    };
    let killed = || {
        let mut kill = kill("aa", Some(ID));
        kill.pod.as_mut().unwrap().pod = PodId::ConfigHash(HASH.to_owned());
        happened(kill)
    };
    let etcd = || links(&[("etcd-worker-1_kube-system_etcd", ID)]);
    play_all(vec![
        ("the mirror pod is created later", vec![
            (0, killed(), &["links"], Some(50)),
            (1, etcd(), &[], Some(2000)),
            (500, mirror(), &[], Some(2000)),
            (500, DUE, &["read etcd-worker-1"], Some(750)),
            (750, DUE, &["1 in etcd-worker-1", "on etcd-worker-1 etcd"], None),
        ]),
        ("no mirror pod", vec![
            (0, killed(), &["links"], Some(50)),
            (1, etcd(), &[], Some(2000)),
            (2000, DUE, &["on the node"], None),
        ]),
        ("pods cannot be watched", vec![
            (0, changed(PodChange::Refused), &[], None),
            (0, killed(), &["on the node"], None),
        ]),
    ]);
}

#[test]
fn one_read_is_for_every_container_that_waits() {
    let id = |n: usize| format!("{n:064x}");
    let mut incidents = Incidents::new(NodeEvents::Kubelet);
    incidents.on(In::ServerAnswered, at(0));
    let asked = |effects: &[Then]| -> Vec<usize> {
        let query = |effect: &Then| match effect {
            Then::Other(Effect::BlockingQuery(BlockingQuery::ContainerLinks(ids))) => {
                Some(ids.len())
            }
            _ => None,
        };
        effects.iter().filter_map(query).collect()
    };
    let mut queries = Vec::new();
    for n in 0..300 {
        let effects = incidents.on(happened(kill("aa", Some(&id(n)))), at(0));
        queries.extend(asked(&effects));
    }
    assert_eq!(queries, [1], "the others wait for the first");
    let effects = incidents.on(none(), at(1));
    assert_eq!(asked(&effects), [299]);

    let mut found = |from: usize, to: usize| {
        let ids: Vec<String> = (from..to).map(id).collect();
        let names: Vec<_> = ids.iter().map(|id| ("pod-aa_shop_web", &**id)).collect();
        let mut effects = incidents.on(links(&names), at(2));
        while incidents.due().is_some_and(|due| due <= at(2).boot) {
            effects.extend(incidents.on(DUE, at(2)));
        }
        effects
    };
    let is_event = |effect: &&Then| matches!(effect, Then::Event(_));
    assert_eq!(found(1, 300).iter().filter(is_event).count(), 299);
    assert_eq!(found(300, 900), [], "not asked for, but remembered");
    let mut killed = |n| asked(&incidents.on(happened(kill("aa", Some(&id(n)))), at(3)));
    assert_eq!(killed(899), [0; 0]);
    assert_eq!(killed(1), [1], "only the latest are remembered");
}
