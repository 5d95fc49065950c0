//! Implements a minimal HTTP/1.1 client: one request as bytes, and the bytes of the response.

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

#[derive(Debug)]
pub struct Answer {
    /// `None` if the connection ended without a status.
    pub code: Option<u16>,
    /// The bytes before the body, as received.
    pub head: String,
    pub body: String,
}

/// Sends `request` and reads to the end of the connection.
pub async fn exchange<S>(mut stream: S, request: &str) -> Answer
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut text = Vec::new();
    // A client that is rejected early is disconnected while it still writes; the response decides.
    let _: std::io::Result<()> = stream.write_all(request.as_bytes()).await;
    let _: std::io::Result<usize> = stream.read_to_end(&mut text).await;
    let text = String::from_utf8_lossy(&text).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    Answer {
        code,
        head: head.to_ascii_lowercase(),
        body: body.to_owned(),
    }
}

/// Returns a whole request without a body.
pub fn request(method: &str, path: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: node\r\n\r\n")
}
