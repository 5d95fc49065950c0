//! A minimal HTTP/1.1 client: one request as bytes, and the bytes of the response.

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

/// What came back.
#[derive(Debug)]
pub struct Answer {
    /// The status; `None` if the connection ended without one.
    pub code: Option<u16>,
    /// Everything before the body, as it came.
    pub head: String,
    /// The rest.
    pub body: String,
}

/// Sends `request` and reads to the end of the connection.
pub async fn exchange<S>(mut stream: S, request: &str) -> Answer
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut text = Vec::new();
    // A client that is rejected early is disconnected while it still writes; the response is what
    // counts.
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

/// What a server at this address answers to `GET`; an error without a server.
pub async fn get(address: &str, path: &str) -> std::io::Result<Answer> {
    let stream = TcpStream::connect(address).await?;
    Ok(exchange(stream, &request("GET", path)).await)
}

/// A whole request without a body.
pub fn request(method: &str, path: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: node\r\n\r\n")
}
