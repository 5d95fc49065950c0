//! Requests for the node's certificate: `CertificateSigningRequest` objects, as a kubelet creates
//! them.

#![forbid(unsafe_code)]

use k8s_openapi::ByteString;
use serde_json::{Value, json};
use x509_cert::der::DecodePem as _;
use x509_cert::request::CertReq;

use super::convert::text;
use super::{ApiError, Client, Endpoint, Refusal};

const GROUP: &str = "certificates.k8s.io/v1";
const SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// The usages of the certificate. An RSA key would also need `key encipherment`.
const USAGES: [&str; 2] = ["digital signature", "client auth"];

#[derive(Debug, Clone, Copy)]
pub struct SigningRequest<'a> {
    pub name: &'a str,
    /// The certificate request in PEM.
    pub pem: &'a str,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestStatus {
    /// Neither approved nor denied, or approved and not signed yet.
    Pending,
    /// The certificate, in PEM.
    Issued(Vec<u8>),
    /// The reason for which the request was denied or failed.
    Denied(String),
    Deleted,
    /// An object of this name exists, for another node, key or signer.
    Foreign,
}

impl SigningRequest<'_> {
    /// Creates the object, or reads the one of the same name that was created before.
    pub async fn create(&self, client: &Client) -> Result<RequestStatus, ApiError> {
        let object = json!({
            "apiVersion": GROUP,
            "kind": "CertificateSigningRequest",
            "metadata": {"name": self.name},
            "spec": {
                "request": ByteString(self.pem.as_bytes().to_vec()),
                "signerName": SIGNER,
                "usages": USAGES,
            },
        });
        match client
            .create(&Endpoint::new_signing_request(self.name), &object)
            .await
        {
            Ok(created) => Ok(self.status(&created)),
            Err(err) if err.refusal() == Some(Refusal::AlreadyExists) => self.read(client).await,
            Err(err) => Err(err),
        }
    }

    pub async fn read(&self, client: &Client) -> Result<RequestStatus, ApiError> {
        match client.get(&Endpoint::signing_request(self.name)).await {
            Ok(object) => Ok(self.status(&object)),
            Err(err) if err.refusal() == Some(Refusal::NotFound) => Ok(RequestStatus::Deleted),
            Err(err) => Err(err),
        }
    }

    fn status(&self, object: &Value) -> RequestStatus {
        if !self.is(object) {
            return RequestStatus::Foreign;
        }
        status(object)
    }

    /// Returns true if `object` requests the same certificate: for the same node and key.
    fn is(&self, object: &Value) -> bool {
        // Their signatures differ.
        let signed_part = |pem: &[u8]| CertReq::from_pem(pem).map(|request| request.info);
        let requested = signed_part(&bytes(object.pointer("/spec/request")));
        text(object, "/spec/signerName") == SIGNER
            && requested.is_ok()
            && requested == signed_part(self.pem.as_bytes())
    }
}

/// Returns the decision of the approver and the signer.
pub(super) fn status(object: &Value) -> RequestStatus {
    let conditions = object
        .pointer("/status/conditions")
        .and_then(Value::as_array);
    let denied = conditions
        .into_iter()
        .flatten()
        .find(|condition| matches!(text(condition, "/type").as_str(), "Denied" | "Failed"));
    if let Some(condition) = denied {
        let [type_, reason, message] =
            ["/type", "/reason", "/message"].map(|key| text(condition, key));
        let why = format!("{type_}, {reason}: {message}");
        return RequestStatus::Denied(why.chars().take(super::error::MESSAGE_LIMIT).collect());
    }
    let certificate = bytes(object.pointer("/status/certificate"));
    if certificate.is_empty() {
        RequestStatus::Pending
    } else {
        RequestStatus::Issued(certificate)
    }
}

/// Returns no bytes if the value is missing or not Base64.
fn bytes(value: Option<&Value>) -> Vec<u8> {
    let bytes = value.map(|value| serde_json::from_value(value.clone()));
    bytes
        .and_then(Result::ok)
        .map_or_else(Vec::new, |ByteString(bytes)| bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_is_that_of_the_conditions_and_the_certificate() {
        let condition = |type_: &str| json!([{"type": type_, "reason": "R", "message": "m"}]);
        let rows = [
            (json!({}), RequestStatus::Pending),
            (
                json!({"conditions": condition("Approved")}),
                RequestStatus::Pending,
            ),
            (
                json!({"conditions": condition("Approved"), "certificate": "YWI="}),
                RequestStatus::Issued(b"ab".to_vec()),
            ),
            (json!({"certificate": "###"}), RequestStatus::Pending),
            (
                json!({"certificate": 7, "conditions": {}}),
                RequestStatus::Pending,
            ),
            (
                json!({"conditions": condition("Denied")}),
                RequestStatus::Denied("Denied, R: m".to_owned()),
            ),
            (
                json!({"conditions": condition("Failed"), "certificate": "YWI="}),
                RequestStatus::Denied("Failed, R: m".to_owned()),
            ),
        ];
        for (written, expected) in rows {
            let object = json!({ "status": written });
            assert_eq!(status(&object), expected, "{object}");
        }
    }
}
