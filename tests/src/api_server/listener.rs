//! Accepts connections over TCP and TLS, and ends them.

use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::auth::Identity;
use super::connection::{Control, Gate, Wire};
use super::http;
use super::state::Inner;

pub(super) async fn accept(listener: TcpListener, inner: Arc<Inner>, acceptor: TlsAcceptor) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        let control = inner.open();
        let served = serve_tls(
            stream,
            Arc::clone(&inner),
            Arc::clone(&control),
            acceptor.clone(),
        );
        tokio::spawn(until_ended(Arc::clone(&inner), control, served));
    }
}

async fn serve_tls(
    stream: TcpStream,
    inner: Arc<Inner>,
    control: Arc<Control>,
    acceptor: TlsAcceptor,
) {
    // By default, small answers wait for the client's delayed acknowledgement.
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let gate = Gate {
        wire: Wire::Tcp(stream),
        control: Arc::clone(&control),
    };
    let Ok(stream) = acceptor.accept(gate).await else {
        return;
    };
    let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let identity = certificates.first().map(|certificate| {
        let state = inner.state();
        let known = state.certificates.get(certificate.as_ref()).cloned();
        known.unwrap_or_else(Identity::unknown)
    });
    http::serve(stream, inner, control, identity).await;
}

/// Serves a connection until it ends, or is ended by its [`Control`].
pub(super) async fn until_ended(
    inner: Arc<Inner>,
    control: Arc<Control>,
    served: impl Future<Output = ()>,
) {
    tokio::select! {
        () = served => {}
        () = control.ended() => {}
    }
    inner.close(control.id);
}
