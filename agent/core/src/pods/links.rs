//! Containers by the names of the links to their logs, which a kubelet makes in
//! `/var/log/containers` when a container has started: `<pod>_<namespace>_<container>-<id>.log`. A
//! name that would exceed 255 bytes is cut, and then has no complete id.
//!
//! <https://github.com/kubernetes/kubernetes/blob/v1.33.0/pkg/kubelet/kuberuntime/legacy.go>

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::names::CONTAINER_ID_LENGTH;
use super::{Container, Pod, PodId};
use crate::object_name::{is_label, is_subdomain};

const SUFFIX: &str = ".log";

/// The content of the name of a link in addition to the container's id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkedContainer {
    pub namespace: Box<str>,
    pub pod: Box<str>,
    /// Name of the container, in one of the pod's lists.
    pub container: Box<str>,
}

impl LinkedContainer {
    /// Returns `None` unless all parts are names that an API server accepts.
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('_');
        let (pod, namespace, container) = (parts.next()?, parts.next()?, parts.next()?);
        let valid = parts.next().is_none()
            && is_subdomain(pod)
            && is_label(namespace)
            && is_label(container);
        valid.then(|| Self {
            namespace: namespace.into(),
            pod: pod.into(),
            container: container.into(),
        })
    }

    #[must_use]
    pub fn is_in(&self, pod: &Pod) -> bool {
        (&self.namespace, &self.pod) == (&pod.namespace, &pod.name)
    }

    /// Returns the pod, which has this id; `None` for a static pod: its mirror pod has another uid,
    /// which is not on the node.
    #[must_use]
    pub fn in_pod(&self, id: &PodId) -> Option<Pod> {
        match id {
            PodId::Uid(uid) => Pod::new(&self.namespace, &self.pod, uid, None),
            PodId::ConfigHash(_) => None,
        }
    }

    /// The list of the pod that contains it stays unknown, because the link does not contain it.
    #[must_use]
    pub fn container(&self) -> Option<Container> {
        Container::new(None, &self.container)
    }
}

/// A search for the links of some containers.
#[derive(Debug)]
pub struct LinkSearch<'a> {
    ids: &'a BTreeSet<Box<str>>,
    /// The links by id; `None` for several links, or one that no kubelet makes.
    found: BTreeMap<&'a str, Option<LinkedContainer>>,
}

impl<'a> LinkSearch<'a> {
    #[must_use]
    pub const fn new(ids: &'a BTreeSet<Box<str>>) -> Self {
        Self {
            ids,
            found: BTreeMap::new(),
        }
    }

    /// Adds the name of a link in the directory.
    pub fn add(&mut self, name: &str) {
        let Some((text, id)) = split(name) else {
            return;
        };
        let Some(id) = self.ids.get(id) else {
            return;
        };
        self.found
            .entry(id)
            .and_modify(|link| *link = None)
            .or_insert_with(|| LinkedContainer::parse(text));
    }

    /// Returns the containers that were found, by id. One with several links is not among them.
    #[must_use]
    pub fn found(self) -> Vec<(Box<str>, LinkedContainer)> {
        let found = self.found.into_iter();
        found
            .filter_map(|(id, link)| Some((id.into(), link?)))
            .collect()
    }
}

/// Splits `<text>-<id>.log`.
fn split(name: &str) -> Option<(&str, &str)> {
    let name = name.strip_suffix(SUFFIX)?;
    let (text, id) = name.split_at_checked(name.len().checked_sub(CONTAINER_ID_LENGTH)?)?;
    Some((text.strip_suffix('-')?, id))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "3b5c8d0f1e2a4b6c8d0f1e2a4b6c8d0f1e2a4b6c8d0f1e2a4b6c8d0f1e2a4b6c";
    const OTHER: &str = "8d0f1e2a4b6c3b5c8d0f1e2a4b6c3b5c8d0f1e2a4b6c3b5c8d0f1e2a4b6c3b5c";

    /// Returns namespace, pod and container of [`ID`] in a directory with these names.
    fn search(names: &[&str]) -> Option<[String; 3]> {
        let ids = BTreeSet::from([ID.into()]);
        let mut search = LinkSearch::new(&ids);
        for name in names {
            search.add(name);
        }
        let mut found = search.found().into_iter();
        let (id, link) = found.next()?;
        assert_eq!((&*id, found.next()), (ID, None));
        Some([link.namespace, link.pod, link.container].map(String::from))
    }

    #[test]
    fn the_name_of_a_link_has_pod_namespace_and_container() {
        let longest = "p".repeat(150);
        let rows = [
            ("cart-0_shop_web-", Some(["shop", "cart-0", "web"])),
            (
                "a.b-c.d_n-1_web-v2-0-",
                Some(["n-1", "a.b-c.d", "web-v2-0"]),
            ),
            (&format!("{longest}_n_c-"), Some(["n", &longest, "c"])),
            ("0_1_2-", Some(["1", "0", "2"])),
        ];
        for (text, expected) in rows {
            let expected = expected.map(|names| names.map(str::to_owned));
            assert_eq!(search(&[&format!("{text}{ID}.log")]), expected, "{text}");
        }
    }

    #[test]
    fn a_name_that_no_kubelet_gives_a_link_identifies_no_container() {
        let (label, subdomain) = ("l".repeat(64), "p".repeat(254));
        let long = [
            format!("p_{label}_c-"),
            format!("p_n_{label}-"),
            format!("{subdomain}_n_c-"),
        ];
        #[rustfmt::skip]
        let rows = [
            "", "-", "_", "__-", "cart-0_shop-", "_shop_web-", "cart-0__web-", "cart-0_shop_-",
            "cart-0_shop_web_x-", "cart-0_shop_web", "cart-0_shop_web--", "Cart-0_shop_web-",
            "cart-0_shop_WEB-", "-cart_shop_web-", "cart-_shop_web-", "cart..0_shop_web-",
            ".cart_shop_web-", "cart/../0_shop_web-", "cart-0_sh.op_web-", "cart-0_shop_we.b-",
            "cart-0_shop_web\u{1b}[2J-", "cart-0_shop\n_web-", "cart 0_shop_web-", "cärt_shop_web-",
            "cart-0_shop_web\u{202e}-", "cart-0_shop_web\0-", "%2e_shop_web-", "{}_shop_web-",
        ];
        for text in rows.into_iter().chain(long.iter().map(String::as_str)) {
            assert_eq!(search(&[&format!("{text}{ID}.log")]), None, "{text:?}");
        }
    }

    #[test]
    fn an_id_must_be_complete_and_the_same() {
        let cut = &ID[..63];
        let rows = [
            format!("cart-0_shop_web-{OTHER}.log"),
            format!("cart-0_shop_web-{cut}.log"),
            format!("cart-0_shop_web-{ID}0.log"),
            format!("cart-0_shop_web-{}.log", ID.to_uppercase()),
            format!("cart-0_shop_web-{ID}"),
            format!("cart-0_shop_web-{ID}.log.gz"),
            format!("cart-0_shop_web-{ID}.LOG"),
            format!("cart-0_shop_web-é{cut}.log"),
            format!("cart-0_shop_web-{}.log", "é".repeat(40)),
            format!("{ID}.log"),
            ".log".to_owned(),
            String::new(),
        ];
        for name in rows {
            assert_eq!(search(&[&name]), None, "{name:?}");
        }
    }

    #[test]
    fn several_links_of_one_container_identify_nothing() {
        let link = |text: &str| format!("{text}-{ID}.log");
        let (web, forged) = (link("cart-0_shop_web"), link("cart-1_shop_web"));
        let invalid = link("..");
        let other = format!("cart-1_shop_web-{OTHER}.log");
        let rows = [
            (vec![&web, &other], Some(["shop", "cart-0", "web"])),
            (vec![&web, &forged], None),
            (vec![&web, &invalid], None),
            (vec![&invalid, &web], None),
            (vec![&web, &forged, &web], None),
        ];
        for (names, expected) in rows {
            let names: Vec<&str> = names.into_iter().map(String::as_str).collect();
            let expected = expected.map(|names| names.map(str::to_owned));
            assert_eq!(search(&names), expected, "{names:?}");
        }
    }

    #[test]
    fn a_link_does_not_have_the_uid_of_a_mirror_pod() {
        let link = LinkedContainer::parse("etcd-worker-1_kube-system_etcd").unwrap();
        let uid = "6d8a4d2e-1f4b-4a62-9b0e-0f7c0f5d8a11";
        let pod = Pod::new("kube-system", "etcd-worker-1", uid, None).unwrap();
        let hash = "a9f3c1d20b8e4f5a96d7c8b1e2f30415".to_owned();
        assert_eq!(link.in_pod(&PodId::Uid(uid.to_owned())), Some(pod.clone()));
        assert_eq!(link.in_pod(&PodId::ConfigHash(hash)), None);
        assert!(link.is_in(&pod));
        let other = Pod::new("default", "etcd-worker-1", uid, None).unwrap();
        assert!(!link.is_in(&other));
    }
}
