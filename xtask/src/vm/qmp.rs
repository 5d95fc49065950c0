//! Sends commands to QEMU's control socket: JSON, one object per line (`docs/interop/qmp-spec.txt`
//! of QEMU).

use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

/// Time limit of a response: emulation may keep QEMU's main loop busy.
const PATIENCE: Duration = Duration::from_secs(5);

/// Runs one command over a new connection: there are few in a boot.
pub fn execute(socket: &Path, command: &str, arguments: &Value) -> Result<()> {
    let stream = UnixStream::connect(socket)
        .with_context(|| format!("cannot connect to {}", socket.display()))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut replies = BufReader::new(stream.try_clone()?);
    let send = |message: Value| writeln!(&stream, "{message}");
    // QEMU accepts other commands only after this one.
    send(json!({"execute": "qmp_capabilities"}))?;
    answer(&mut replies).context("QEMU's greeting")?;
    send(json!({"execute": command, "arguments": arguments}))?;
    answer(&mut replies).with_context(|| command.to_owned())
}

/// Skips the greeting and events.
fn answer(replies: &mut impl BufRead) -> Result<()> {
    let mut line = String::new();
    loop {
        line.clear();
        if replies.read_line(&mut line)? == 0 {
            bail!("QEMU closed its control socket");
        }
        let reply: Value = serde_json::from_str(&line).context("QEMU's reply is not JSON")?;
        if let Some(error) = reply.get("error") {
            bail!("{}", error["desc"].as_str().unwrap_or("refused"));
        }
        if reply.get("return").is_some() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_found_among_events_and_an_error_is_returned() {
        let table = [
            (
                "{\"QMP\": {}}\n{\"event\": \"RESUME\"}\n{\"return\": {}}\n",
                None,
            ),
            (
                "{\"event\": \"A\"}\n{\"error\": {\"class\": \"X\", \"desc\": \"no such disk\"}}\n",
                Some("no such disk"),
            ),
            ("{\"QMP\": {}}\n", Some("QEMU closed its control socket")),
        ];
        for (received, expected) in table {
            let result = answer(&mut received.as_bytes())
                .err()
                .map(|err| err.to_string());
            assert_eq!(result.as_deref(), expected, "{received}");
        }
    }
}
