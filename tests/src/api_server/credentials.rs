//! The credentials of clients, and the permissions of users.

use std::path::{Path, PathBuf};

use super::tls::{self, TlsCredentials};
use super::{ApiServer, Grant, Identity};

impl ApiServer {
    /// The certificate that clients have to trust, in PEM.
    pub fn ca_pem(&self) -> String {
        self.listening().authority.ca_pem.clone()
    }

    /// Writes `<dir>/kubeconfig`, with a certificate of an administrator.
    pub fn admin_kubeconfig(&self, dir: &Path) -> PathBuf {
        self.kubeconfig(&dir.join("kubeconfig"), &Identity::admin())
    }

    /// Writes `<dir>/kubeconfig-<name>`, with a certificate of a node's agent.
    pub fn node_kubeconfig(&self, dir: &Path, name: &str) -> PathBuf {
        self.kubeconfig(
            &dir.join(format!("kubeconfig-{name}")),
            &Identity::node(name),
        )
    }

    /// Writes a kubeconfig to `path`, with a client certificate of this identity.
    pub fn kubeconfig(&self, path: &Path, identity: &Identity) -> PathBuf {
        let authority = &self.listening().authority;
        let issued = authority.issue(identity);
        let der = issued.der.to_vec();
        self.inner
            .state()
            .certificates
            .insert(der, identity.clone());
        let credentials = TlsCredentials::Certificate(&issued);
        tls::write_kubeconfig(path, &self.url(), &authority.ca_pem, &credentials)
    }

    /// Writes a kubeconfig to `path`, with a bearer token. [`ApiServer::allow_token`] makes it
    /// good.
    pub fn token_kubeconfig(&self, path: &Path, token: &str) -> PathBuf {
        let ca_pem = &self.listening().authority.ca_pem;
        tls::write_kubeconfig(path, &self.url(), ca_pem, &TlsCredentials::Token(token))
    }

    /// From now on this bearer token identifies this user.
    pub fn allow_token(&self, token: &str, identity: Identity) {
        self.inner.state().tokens.insert(token.to_owned(), identity);
    }

    /// From now on this bearer token is answered with 401.
    pub fn revoke_token(&self, token: &str) {
        self.inner.state().tokens.remove(token);
    }

    /// Certificates issued so far are answered with 401 from now on, on new connections; those
    /// there are break.
    pub fn expire_certificates(&self) {
        self.inner.state().certificates.clear();
        self.reset_connections();
    }

    /// Grants a permission to a user who is neither an administrator nor a node.
    pub fn grant(&self, grant: Grant) {
        self.inner.state().grants.push(grant);
    }

    /// Grants such a user several permissions, each a verb and a resource.
    pub fn grant_all(&self, user: &str, permissions: &[(&str, &str)]) {
        for (verb, resource) in permissions {
            self.grant(Grant {
                user: user.to_owned(),
                verb: (*verb).to_owned(),
                resource: (*resource).to_owned(),
            });
        }
    }
}
