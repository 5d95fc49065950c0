//! Deliveries to a webhook on this machine.

use std::io;
use std::path::Path;

use nodepulse_core::checked_line;
use nodepulse_core::incident::BootId;
use nodepulse_core::kube_event::ReportedKills;
use nodepulse_io::lane::{Lanes, Purpose};
use nodepulse_io::tasks::Tasks;
use nodepulse_linux::host::scratch::Scratch;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};

use super::*;
use crate::config::{Config, Overrides};
use crate::history::outbox::SinkState;
use crate::history::{History, HistoryFiles, HistorySetup};

const SOON: Duration = Duration::from_secs(20);

fn config(url: String) -> Config {
    let flags = Overrides {
        sinks_webhooks: Some(url),
        ..Overrides::default()
    };
    let absent = |_: &Path| Err(io::ErrorKind::NotFound.into());
    Config::load(&flags, &|_| None, &absent, "worker-1").unwrap()
}

/// Starts a webhook that accepts everything. Returns its sink, and the incidents that it gets.
async fn webhook() -> (Sink, mpsc::Receiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let sink = open(&config(url), false).unwrap().remove(0);
    let (sender, received) = mpsc::channel(1_000);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(accept(BufReader::new(stream), sender.clone()));
        }
    });
    (sink, received)
}

async fn accept(mut stream: BufReader<TcpStream>, received: mpsc::Sender<Value>) {
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).await.unwrap();
            if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            match line.trim() {
                "" if line.is_empty() => return,
                "" => break,
                _ => {}
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.unwrap();
        let event: Value = serde_json::from_slice(&body).unwrap();
        received.send(event["data"].clone()).await.unwrap();
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
        stream.write_all(answer).await.unwrap();
    }
}

async fn next(received: &mut mpsc::Receiver<Value>) -> Value {
    let next = tokio::time::timeout(SOON, received.recv()).await;
    next.expect("an incident").unwrap()
}

fn metering(lanes: &Lanes) -> Metering {
    Metering::start("worker-1", "files", Vec::new(), None, lanes.clone())
}

/// Returns an incident of this number that is not settled.
fn entry(number: u64) -> Entry {
    let incident = json!({
        "apiVersion": "nodepulse.dev/incident/v1",
        "id": format!("{BOOT}-{number}"), "revision": 1, "settled": false, "time": "", "object": {},
        "reason": "", "message": "", "kind": "UnidentifiedOOMKills", "facts": {"kills": 1, "whileDown": true},
    });
    Entry {
        position: Position(number),
        added: ReportedKills::default(),
        incident: serde_json::from_value(incident).unwrap(),
    }
}

const BOOT: &str = "00000000-0000-0000-0000-000000000007";

#[tokio::test]
async fn what_is_in_memory_is_delivered_while_the_disk_hangs() {
    let (sink, mut received) = webhook().await;
    let dir = Scratch::new();
    // What an earlier agent left open is settled at the start.
    let open = (1..=3).map(|number| checked_line::line(&entry(number)).unwrap());
    dir.write("incidents-0000000001.jsonl", open.collect::<String>());
    let files = HistoryFiles::open(dir.path(), None, |why| panic!("{why}")).unwrap();
    let lanes = Lanes::new(&[]);
    let (hangs, is_hanging) = oneshot::channel();
    let (disk, end) = std::sync::mpsc::channel::<()>();
    let lane = lanes.of(Purpose::History);
    tokio::spawn(async move {
        let hang = move || {
            hangs.send(()).unwrap();
            end.recv()
        };
        lane.run(Duration::ZERO, hang).await
    });
    is_hanging.await.unwrap();
    let setup = HistorySetup {
        files: Some(files),
        sinks: vec![sink],
    };
    let mut tasks = Tasks::default();
    let _history = History::start(
        setup,
        (BootId(7), None),
        &lanes,
        &metering(&lanes),
        &mut tasks,
    );
    for number in 1..=3 {
        let incident = next(&mut received).await;
        assert_eq!(incident["id"], format!("{BOOT}-{number}"));
        assert_eq!(incident["settled"], true);
    }
    assert_eq!(lanes.blocked(), ["history"]);
    drop(disk);
}

#[tokio::test]
async fn revisions_that_the_disk_lost_are_counted_and_those_in_memory_follow() {
    let (sink, mut received) = webhook().await;
    let metering = metering(&Lanes::new(&[]));
    let series = metering.sink_series(sink.name());
    let state = SinkState {
        cursor: Cursor::default(),
        series: series.clone(),
        taken: None,
    };
    let outbox = Outbox::new(Position::default(), [state], BootId(7), true);
    for number in 1..=70 {
        outbox.push(entry(number));
    }
    outbox.lost(Position(70));
    outbox.recorded(Position(70));
    let delivery = Delivery::new(sink, 0, Arc::new(outbox), None, &metering);
    let delivering = tokio::spawn(delivery.run());
    for number in 7..=70 {
        let incident = next(&mut received).await;
        assert_eq!(incident["id"], format!("{BOOT}-{number}"));
    }
    assert_eq!(series.unrecorded.get(), 6);
    assert_eq!(series.removed.get(), 0);
    delivering.abort();
}

#[tokio::test]
async fn a_receiver_that_has_accepted_nothing_refuses_nothing_for_an_hour() {
    let (sink, _) = webhook().await;
    let metering = metering(&Lanes::new(&[]));
    let outbox = Outbox::new(Position::default(), [], BootId(7), true);
    let mut delivery = Delivery::new(sink, 0, Arc::new(outbox), None, &metering);
    let config = config("http://127.0.0.1:9".to_owned());
    let is_failing = || {
        let sinks = metering.sinks(&config.sinks);
        assert_eq!((sinks.len(), sinks[0].name.as_str()), (1, "webhook"));
        sinks[0].failing
    };
    assert!(!is_failing());
    let refuse = |delivery: &mut Delivery| {
        let mut waited = Duration::ZERO;
        delivery.failed = 0;
        while let Err(delay) = delivery.answered(Answer::Failed("400".to_owned()), 1) {
            assert!(is_failing());
            waited += delay;
        }
        waited.as_secs() / 60
    };
    let (before, lost) = (refuse(&mut delivery), delivery.series.refused.clone());
    assert!((50..90).contains(&before), "{before} minutes");
    assert_eq!(lost.get(), 1);
    delivery.answered(Answer::Accepted, 1).unwrap();
    let after = refuse(&mut delivery);
    assert!((2..5).contains(&after), "{after} minutes");
    assert_eq!(lost.get(), 2);
}
