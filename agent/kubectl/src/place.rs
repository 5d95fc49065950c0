//! Objects and collections of the API: their paths, and their names in failures.

use nodepulse_core::escape::query_value;

use crate::failure::{Failure, one_line};

/// One object, or one collection.
#[derive(Debug, Clone)]
pub struct Place {
    /// Empty for the core group.
    pub group: &'static str,
    /// Plural name, with the subresource after a slash.
    pub resource: &'static str,
    /// `None` for all namespaces, or for an object that has none.
    pub namespace: Option<String>,
    /// `None` for the collection.
    pub name: Option<String>,
    /// A port of a pod, which serves metrics.
    port: Option<u16>,
}

impl Place {
    pub const fn nodes() -> Self {
        Self::core("nodes")
    }

    pub fn node(name: &str) -> Result<Self, Failure> {
        Self::nodes().named(name)
    }

    /// `None` stands for all namespaces.
    pub fn pods(namespace: Option<&str>) -> Result<Self, Failure> {
        Self::core("pods").within(namespace)
    }

    pub fn pod(namespace: &str, name: &str) -> Result<Self, Failure> {
        Self::pods(Some(namespace))?.named(name)
    }

    /// The metrics that a pod serves on a port, by way of the API server.
    pub fn metrics(namespace: &str, pod: &str, port: u16) -> Result<Self, Failure> {
        Ok(Self {
            resource: "pods/proxy",
            port: Some(port),
            ..Self::pod(namespace, pod)?
        })
    }

    /// `None` stands for all namespaces.
    pub fn events(namespace: Option<&str>) -> Result<Self, Failure> {
        Self::core("events").within(namespace)
    }

    pub fn lease(node: &str) -> Result<Self, Failure> {
        let leases = Self {
            group: "coordination.k8s.io",
            ..Self::core("leases")
        };
        leases.within(Some("kube-node-lease"))?.named(node)
    }

    const fn core(resource: &'static str) -> Self {
        Self {
            group: "",
            resource,
            namespace: None,
            name: None,
            port: None,
        }
    }

    fn within(self, namespace: Option<&str>) -> Result<Self, Failure> {
        let namespace = namespace.map(|namespace| checked("namespace", namespace));
        Ok(Self {
            namespace: namespace.transpose()?,
            ..self
        })
    }

    fn named(self, name: &str) -> Result<Self, Failure> {
        let name = checked(self.kind(), name)?;
        Ok(Self {
            name: Some(name),
            ..self
        })
    }

    /// Returns `nodes` for `nodes`, and `pods` for `pods/proxy`.
    fn plural(&self) -> &'static str {
        let (plural, _) = self.resource.split_once('/').unwrap_or((self.resource, ""));
        plural
    }

    fn kind(&self) -> &'static str {
        self.plural().trim_end_matches('s')
    }

    /// Returns a path such as `/api/v1/nodes`, with a query.
    pub fn path(&self, query: &[(&str, &str)]) -> String {
        let mut path = if self.group.is_empty() {
            "/api/v1".to_owned()
        } else {
            format!("/apis/{}/v1", self.group)
        };
        if let Some(namespace) = &self.namespace {
            path.push_str("/namespaces/");
            path.push_str(namespace);
        }
        path.push('/');
        path.push_str(self.plural());
        if let Some(name) = &self.name {
            path.push('/');
            path.push_str(name);
        }
        if let Some(port) = self.port {
            path.extend([":", &port.to_string(), "/proxy/metrics"]);
        }
        let query = query.iter().filter(|(_, value)| !value.is_empty());
        for (n, (key, value)) in query.enumerate() {
            path.push(if n == 0 { '?' } else { '&' });
            path.push_str(key);
            path.push('=');
            path.push_str(&query_value(value));
        }
        path
    }

    /// Describes the place in failures.
    pub fn what(&self) -> String {
        let kind = self.kind();
        match (&self.namespace, &self.name) {
            (Some(namespace), Some(name)) if self.plural() == "pods" => {
                format!("{kind} {name} in namespace {namespace}")
            }
            (_, Some(name)) => format!("{kind} {name}"),
            (_, None) => self.resource.to_owned(),
        }
    }

    /// Returns a text such as `in namespace shop`, for failures.
    pub fn whereabouts(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("in namespace {namespace}"),
            None => "in the whole cluster".to_owned(),
        }
    }
}

/// Returns the name, unless it could change the path of a request.
fn checked(kind: &str, name: &str) -> Result<String, Failure> {
    let is_allowed =
        |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    let starts = name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    if starts && name.len() <= 253 && name.chars().all(is_allowed) {
        return Ok(name.to_owned());
    }
    Err(Failure::Usage(format!(
        "\"{}\" is not the name of a {kind}; names consist of a-z, 0-9, - and .",
        one_line(name)
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_the_api() {
        let pod = Place::pod("shop", "cart-0").unwrap();
        assert_eq!(pod.path(&[]), "/api/v1/namespaces/shop/pods/cart-0");
        let lease = Place::lease("worker-1").unwrap().path(&[]);
        assert!(
            lease.ends_with("v1/namespaces/kube-node-lease/leases/worker-1"),
            "{lease}"
        );
        let served = Place::metrics("np", "agent-x", 20260).unwrap();
        assert_eq!(
            served.path(&[]),
            "/api/v1/namespaces/np/pods/agent-x:20260/proxy/metrics"
        );
        assert_eq!(served.what(), "pod agent-x in namespace np");
        let query = [("limit", "5"), ("continue", ""), ("labelSelector", "a=b&c")];
        assert_eq!(
            Place::nodes().path(&query),
            "/api/v1/nodes?limit=5&labelSelector=a%3Db%26c"
        );
    }

    #[test]
    fn a_name_that_would_change_the_path_is_wrong_usage() {
        for name in ["", "../x", "a/b", "a?b", "A", "-a", "a b", "a\u{1b}[2J"] {
            let failure = Place::node(name).unwrap_err();
            assert_eq!(failure.exit_status(), 2, "{name:?}");
            assert!(!failure.to_string().contains('\u{1b}'), "{name:?}");
        }
    }
}
