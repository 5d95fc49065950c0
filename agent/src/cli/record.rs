//! `nodepulse record`: a recording of the running daemon.

#![expect(
    clippy::print_stderr,
    reason = "reports progress, which is not a result"
)]

use std::fs::File;
use std::future::pending;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

use super::status::DaemonLocation;
use super::{fail, refuse};
use crate::{config, serve};

/// Maximum size of a line in bytes: the first one contains the state of the subjects.
const MAX_LINE: usize = 16 << 20;

/// Maximum time until the daemon answers.
const ANSWER: Duration = Duration::from_secs(10);

/// Flags of `record`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// File to write, which must not exist; `-` is standard output. It contains names of pods,
    /// processes and disks.
    file: PathBuf,
    /// Stop after this time, instead of when interrupted. Example: 10m.
    #[arg(long, value_name = "DURATION")]
    duration: Option<String>,
    #[command(flatten)]
    location: DaemonLocation,
}

/// Why a recording ended.
enum RecordEnd {
    /// Interrupted, or after the requested time.
    Requested,
    Daemon,
}

pub fn run(arguments: Arguments) -> ExitCode {
    let duration = arguments.duration.as_deref().map(|text| {
        let parsed = config::parse_duration(text);
        parsed.map_err(|why| format!("--duration: {text:?} {why}; example: --duration 10m"))
    });
    let duration = match duration.transpose() {
        Ok(duration) => duration,
        Err(why) => return refuse(&why),
    };
    let directory = match arguments.location.state_directory() {
        Ok(directory) => directory,
        Err(why) => return refuse(&why),
    };
    let socket = directory.join(serve::socket::NAME);
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(err) => return fail(&err),
    };
    let path = arguments.file.display();
    let recorded = runtime.block_on(async {
        let stream = connect(&socket).await?;
        let mut file = create(&arguments.file)?;
        eprintln!("recording into {path}; stop with Ctrl-C");
        let mut bytes = 0;
        let end = copy(stream, duration, |line| {
            bytes += line.len();
            file.write_all(line)
        });
        let end = end.await.map_err(|err| format!("{path}: {err}"))?;
        eprintln!("{bytes} bytes recorded");
        Ok::<_, String>(end)
    });
    match recorded {
        Ok(RecordEnd::Requested) => ExitCode::SUCCESS,
        Ok(RecordEnd::Daemon) => fail(&format!(
            "the daemon ended the recording: it was stopped, it serves another one, or this command \
             was too slow; {path} can be replayed up to there"
        )),
        Err(why) => fail(&why),
    }
}

/// Opens a new file for its owner only, or standard output.
fn create(path: &Path) -> Result<Box<dyn io::Write>, String> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdout()));
    }
    let mut options = File::options();
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    let file = file.map_err(|err| format!("cannot create {}: {err}", path.display()))?;
    Ok(Box::new(file))
}

/// Requests a recording. The stream continues after the head of the answer.
async fn connect(socket: &Path) -> Result<UnixStream, String> {
    let shown = socket.display();
    let failed = |err: io::Error| match err.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => format!(
            "no daemon is listening on {shown}; `record` needs a running daemon; start it, or set \
             --state-directory"
        ),
        _ => format!("no answer from the daemon on {shown}: {err}; read its log"),
    };
    let exchange = async {
        let mut stream = UnixStream::connect(socket).await?;
        // By this version the end of the connection is the end of the answer.
        let request = b"GET /v1/record HTTP/1.0\r\nHost: nodepulse\r\n\r\n";
        stream.write_all(request).await?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            if head.len() == 4096 {
                return Err(io::Error::other("the head of the answer is too long"));
            }
            head.push(stream.read_u8().await?);
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        match head.split(' ').nth(1) {
            Some("200") => Ok(stream),
            Some("404") => Err(io::Error::other("it has another version")),
            code => Err(io::Error::other(format!("status {code:?}"))),
        }
    };
    match tokio::time::timeout(ANSWER, exchange).await {
        Ok(stream) => stream.map_err(failed),
        Err(_) => Err(failed(io::ErrorKind::TimedOut.into())),
    }
}

/// Passes whole lines to `write`.
async fn copy(
    mut stream: UnixStream,
    duration: Option<Duration>,
    mut write: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<RecordEnd> {
    let over = async {
        match duration {
            Some(duration) => tokio::time::sleep(duration).await,
            None => pending().await,
        }
    };
    tokio::pin!(over);
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut terminated = signal(SignalKind::terminate())?;
    let mut received = Vec::new();
    loop {
        let read = tokio::select! {
            read = stream.read_buf(&mut received) => read?,
            _ = interrupted.recv() => return Ok(RecordEnd::Requested),
            _ = terminated.recv() => return Ok(RecordEnd::Requested),
            () = &mut over => return Ok(RecordEnd::Requested),
        };
        if read == 0 {
            return Ok(RecordEnd::Daemon);
        }
        if let Some(end) = received.iter().rposition(|byte| *byte == b'\n') {
            let rest = received.split_off(end + 1);
            write(&std::mem::replace(&mut received, rest))?;
        } else if MAX_LINE < received.len() {
            return Err(io::Error::other(format!(
                "a line of more than {MAX_LINE} bytes"
            )));
        }
    }
}
