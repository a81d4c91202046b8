//! Which instance may touch which part of a queue, its share, its handover.

mod handover;
mod share;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use postroom_tests::cluster::DEADLINE;
use postroom_tests::{Database, Worker};

/// How many lanes each owner has, unowned ones under an empty name.
async fn owners(db: &Database) -> HashMap<String, usize> {
    let rows = db
        .admin()
        .rows("SELECT owner, count(*) FROM postroom.lane WHERE queue = 'outbox' GROUP BY 1")
        .await;
    rows.iter()
        .map(|row| {
            let (owner, count) = row.split_once('|').expect("two columns");
            (owner.to_string(), count.parse().expect("a count"))
        })
        .collect()
}

/// One message in every lane; their payloads are the lanes.
const ONE_PER_LANE: &str = "
    SELECT postroom.send('note', to_jsonb(lane), stream, 'desk')
      FROM (SELECT DISTINCT ON (lane) lane, stream
              FROM (SELECT postroom.stream_id_of('k' || n) AS stream,
                           postroom.lane_of(postroom.partition_of(postroom.stream_id_of('k' || n))) AS lane
                      FROM generate_series(1, 2000) AS n) AS s
             ORDER BY lane, stream) AS l";

/// Lets all members claim, completing what they get, until `fair` holds.
async fn settle(db: &Database, members: &[Worker], fair: impl Fn(&HashMap<String, usize>) -> bool) {
    let start = Instant::now();
    loop {
        for member in members {
            let items = member.claim().await;
            member.complete(&items).await;
        }
        let now = owners(db).await;
        if fair(&now) {
            return;
        }
        assert!(start.elapsed() < DEADLINE, "deadline: {now:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
