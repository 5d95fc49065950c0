//! What waits in an outage.

use std::collections::VecDeque;

use super::*;

const ROOM: usize = 20;

/// Returns a server that does not answer the first eight requests.
fn silent_at_first() -> Scripted {
    let silence = vec![Reply::Cut; 8].into_iter();
    Scripted::new(silence.chain(vec![accepted(); 300]))
}

fn kill(n: u64) -> Draft {
    Draft {
        id: Some(id(n)),
        position: Some(Position(n)),
        ..input("OOMKilled", &format!("victim {n}"))
    }
}

#[tokio::test(start_paused = true)]
async fn if_the_queue_is_full_incidents_wait_and_other_events_are_lost() {
    let server = silent_at_first();
    let mut started = start_with_room(&server, 3, ROOM);
    let of_a_pod = |n: u64| Draft {
        object: pod(&format!("cart-{n}"), &n.to_string(), None),
        ..kill(n)
    };
    let mut kills: VecDeque<_> = (1..=200).map(of_a_pod).collect();
    let all = async {
        while !kills.is_empty() {
            started.sink.deliver(&mut kills).await;
        }
    };
    let waits = tokio::time::timeout(Duration::from_secs(1), all).await;
    assert!(waits.is_err(), "during the outage");
    // One is on its way, and the channel is full.
    assert_eq!(kills.len(), 200 - (1 + ROOM + INCIDENTS));
    started.sink.record(input("Rebooted", "m"));
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(started.sink.counts().lost_full, 1);
    while !kills.is_empty() {
        started.sink.deliver(&mut kills).await;
    }
    tokio::time::sleep(Duration::from_hours(1)).await;
    let counts = started.sink.counts();
    assert_eq!((counts.delivered, counts.lost()), (200, 1), "{counts:?}");
    let outcome = |n| Outcome {
        position: Position(n),
        is_accepted: true,
    };
    let mut outcomes: Vec<_> = std::iter::from_fn(|| started.outcomes.try_recv().ok()).collect();
    outcomes.sort_by_key(|outcome| outcome.position);
    assert_eq!(outcomes, (1..=200).map(outcome).collect::<Vec<_>>());
    assert_eq!(reported(&server), 200);
}

#[tokio::test(start_paused = true)]
async fn similar_events_take_no_room_and_are_one_write_after_an_outage() {
    let server = silent_at_first();
    let mut started = start_with_room(&server, 3, ROOM);
    let mut kills: VecDeque<_> = (1..=200).map(kill).collect();
    while !kills.is_empty() {
        started.sink.deliver(&mut kills).await;
    }
    started.sink.record(Draft {
        is_later: true,
        of: 0,
        ..kill(150)
    });
    let mut times = Vec::new();
    while times.iter().sum::<u32>() < 200 {
        times.push(started.deliveries.recv().await.unwrap().times);
    }
    assert_eq!(times, [1, 1, 1, 1, 1, 1, 1, 1, 1, 191]);
    assert_eq!(reported(&server), 200);
    tokio::time::sleep(Duration::from_mins(1)).await;
    let outcomes = std::iter::from_fn(|| started.outcomes.try_recv().ok());
    assert_eq!(outcomes.count(), 201);
    assert_eq!(server.lines().len(), 8 + 10);
}

/// Returns the number of observations that the server has, according to the requests.
fn reported(server: &Scripted) -> u64 {
    let mut counts = std::collections::BTreeMap::new();
    for (nth, line) in server.lines().iter().enumerate() {
        let body = server.body(nth);
        let name = match line.strip_prefix("PATCH ") {
            Some(path) => path.rsplit('/').next().unwrap().to_owned(),
            None => body["metadata"]["name"].as_str().unwrap().to_owned(),
        };
        counts.insert(name, body["count"].as_u64().unwrap());
    }
    counts.values().sum()
}
