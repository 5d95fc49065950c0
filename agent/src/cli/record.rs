//! `nodepulse record`: a recording of the running daemon.

#![expect(
    clippy::print_stderr,
    reason = "reports progress, which is not a result"
)]

use std::fs::{self, File};
use std::future::pending;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixStream as StdStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tokio::io::AsyncReadExt as _;
use tokio::net::UnixStream;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::status::DaemonLocation;
use super::{client, fail, refuse};
use crate::config;

/// Maximum size of a line in bytes: the first one contains the state of the subjects.
const MAX_LINE: usize = 16 << 20;

/// Time for what is left to be written, when the recording is to end.
const LAST_WRITE: Duration = Duration::from_secs(2);

/// Name of a file that stands for standard output.
const STDOUT: &str = "-";

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
    // Before the request, which ends another recording.
    let file = match create(&arguments.file) {
        Ok(file) => file,
        Err(why) => return fail(&why),
    };
    let stream = match client::open(&directory, "/v1/record") {
        Ok(stream) => stream,
        Err(err) => {
            if arguments.file != Path::new(STDOUT) {
                // It is new and empty.
                let _removed: io::Result<()> = fs::remove_file(&arguments.file);
            }
            return fail(&client::reason(err, &directory, "record"));
        }
    };
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(err) => return fail(&err),
    };
    let path = arguments.file.display();
    eprintln!("recording into {path}; stop with Ctrl-C");
    let recorded = runtime.block_on(record(stream, duration, file));
    // A write that does not end must not keep the command.
    runtime.shutdown_background();
    match recorded {
        Ok((end, bytes)) => {
            eprintln!("{bytes} bytes recorded");
            match end {
                RecordEnd::Requested => ExitCode::SUCCESS,
                RecordEnd::Daemon => fail(&format!(
                    "the daemon ended the recording: it was stopped, it serves another one, or this \
                     command was too slow; {path} can be replayed up to there"
                )),
            }
        }
        Err(err) => fail(&format!("{path}: {err}")),
    }
}

/// Opens a new file for its owner only, or standard output.
fn create(path: &Path) -> Result<Box<dyn io::Write + Send>, String> {
    if path == Path::new(STDOUT) {
        return Ok(Box::new(io::stdout()));
    }
    let mut options = File::options();
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    let file = file.map_err(|err| format!("cannot create {}: {err}", path.display()))?;
    Ok(Box::new(file))
}

/// Writes whole lines to `file`, on another thread, and returns the number of bytes.
async fn record(
    stream: StdStream,
    duration: Option<Duration>,
    mut file: Box<dyn io::Write + Send>,
) -> io::Result<(RecordEnd, usize)> {
    stream.set_nonblocking(true)?;
    let stream = UnixStream::from_std(stream)?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut terminated = signal(SignalKind::terminate())?;
    let over = async {
        match duration {
            Some(duration) => tokio::time::sleep(duration).await,
            None => pending().await,
        }
    };
    let (lines, mut received) = mpsc::channel::<Vec<u8>>(1);
    let writer = spawn_blocking(move || {
        let mut bytes = 0;
        while let Some(lines) = received.blocking_recv() {
            file.write_all(&lines)?;
            bytes += lines.len();
        }
        file.flush().map(|()| bytes)
    });
    let end = tokio::select! {
        end = copy(stream, lines) => end,
        _ = interrupted.recv() => Ok(RecordEnd::Requested),
        _ = terminated.recv() => Ok(RecordEnd::Requested),
        () = over => Ok(RecordEnd::Requested),
    };
    match timeout(LAST_WRITE, writer).await {
        // After what was received before an error is written.
        Ok(Ok(written)) => written.and_then(|bytes| Ok((end?, bytes))),
        Ok(Err(ended)) => Err(ended.into()),
        Err(_) => Err(io::Error::other("a write did not end in time")),
    }
}

/// Sends whole lines to `lines`, until the stream ends or the writer has failed.
async fn copy(mut stream: UnixStream, lines: mpsc::Sender<Vec<u8>>) -> io::Result<RecordEnd> {
    let mut received = Vec::new();
    while 0 < stream.read_buf(&mut received).await? {
        if let Some(end) = received.iter().rposition(|byte| *byte == b'\n') {
            let rest = received.split_off(end + 1);
            let sent = lines.send(std::mem::replace(&mut received, rest)).await;
            if sent.is_err() {
                break;
            }
        } else if MAX_LINE < received.len() {
            return Err(io::Error::other(format!(
                "a line of more than {MAX_LINE} bytes"
            )));
        }
    }
    Ok(RecordEnd::Daemon)
}
