//! Credentials with which a node requests its certificate, and who approves that.

use std::path::PathBuf;
use std::time::Duration;

use nodepulse_tests::api_server::{Identity, Issue};
use serde_json::{Value, json};

use super::super::caller::text;
use super::super::shipped::collection;
use super::{Stage, may};

pub const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

impl Stage {
    /// The user of [`Stage::bootstrap_file`].
    pub fn bootstrap_user(&self) -> String {
        format!("system:bootstrap:{}", self.name)
    }

    /// A kubeconfig that may request a certificate for the Node, with approval as in a cluster of
    /// kubeadm.
    pub async fn bootstrap_file(&self) -> PathBuf {
        const GROUP: &str = "certificates.k8s.io";
        const RESOURCE: &str = "certificatesigningrequests";

        let user = self.bootstrap_user();
        if let Some(server) = &self.double {
            server.allow_token(&user, Identity::user(&user));
            server.grant_all(&user, &[("create", RESOURCE), ("get", RESOURCE)]);
            return self.kubeconfig("bootstrap", &json!({"token": user}));
        }
        let rbac = "rbac.authorization.k8s.io";
        let group = json!({"kind": "Group", "name": self.name, "apiGroup": rbac});
        let approved = format!("system:{GROUP}:{RESOURCE}:nodeclient");
        for (what, role) in [
            ("request", "system:node-bootstrapper"),
            ("approve", &approved),
        ] {
            let binding = json!({
                "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding",
                "metadata": {"name": self.further(what)},
                "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": role},
                "subjects": [group],
            });
            self.admin.make(&collection(&binding), &binding).await;
        }
        let identity = json!({"as": user, "as-groups": [self.name]});
        let file = self.kubeconfig("bootstrap", &identity);
        may(
            &file,
            &json!({"verb": "create", "group": GROUP, "resource": RESOURCE}),
        )
        .await;
        file
    }

    /// Deletes the requests of the Node, whose names are chosen by the agent. Returns their number.
    pub(super) async fn clear_requests(&self) -> usize {
        let users = [self.bootstrap_user(), format!("system:node:{}", self.name)];
        let mut requests = self.admin.items(REQUESTS).await;
        requests.retain(|request| {
            users
                .iter()
                .any(|user| request["spec"]["username"] == **user)
        });
        for request in &requests {
            let name = text(&request["metadata"], "name");
            self.admin.delete(&format!("{REQUESTS}/{name}")).await;
        }
        requests.len()
    }

    /// Approves and signs a request on the embedded server; a real one does it itself.
    pub fn issue(&self, request: &Value) {
        if let Some(server) = &self.double {
            server.issue(request, &Issue::now(server, Duration::from_hours(1)));
        }
    }
}
