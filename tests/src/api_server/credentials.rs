//! Issues the credentials of clients, and grants permissions to users.

use std::path::{Path, PathBuf};

use super::tls::{self, TlsCredentials};
use super::{ApiServer, Grant, Identity};

impl ApiServer {
    /// Returns the certificate that clients must trust, in PEM.
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

    /// Writes a kubeconfig to `path`, with a bearer token that [`ApiServer::allow_token`] accepts.
    pub fn token_kubeconfig(&self, path: &Path, token: &str) -> PathBuf {
        let ca_pem = &self.listening().authority.ca_pem;
        tls::write_kubeconfig(path, &self.url(), ca_pem, &TlsCredentials::Token(token))
    }

    /// Identifies this user by this bearer token.
    pub fn allow_token(&self, token: &str, identity: Identity) {
        self.inner.state().tokens.insert(token.to_owned(), identity);
    }

    /// Answers this bearer token with 401.
    pub fn revoke_token(&self, token: &str) {
        self.inner.state().tokens.remove(token);
    }

    /// Answers the certificates issued so far with 401 on new connections, and ends existing ones.
    pub fn expire_certificates(&self) {
        self.inner.state().certificates.clear();
        self.reset_connections();
    }

    pub fn grant(&self, grant: Grant) {
        self.inner.state().grants.push(grant);
    }

    /// Grants a user several permissions, each a verb and a resource.
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
