//! A worker process that tests kill. It handles the messages of `load` into the table `handled`,
//! survives the loss of its connection, and is killed by the message `poison`.
//!
//! usage: victim URL LEASE_MS

use std::time::{Duration, Instant};

use postroom_tests::Session;
use postroom_tests::cluster::kill_9;
use postroom_tests::load::numbered;
use postroom_tests::worker::Worker;
use tokio_postgres::Error;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().expect("usage: victim URL LEASE_MS");
    let lease = arguments
        .next()
        .and_then(|text| text.parse().ok())
        .expect("usage: victim URL LEASE_MS");
    let mut instance = None;
    loop {
        // Whatever happened to the connection: connect again and go on as the same instance.
        let _ = work(&url, Duration::from_millis(lease), &mut instance).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn work(url: &str, lease: Duration, instance: &mut Option<String>) -> Result<(), Error> {
    let session = Session::try_connect(url).await?;
    let mut beaten = Instant::now();
    let worker = match instance.take() {
        Some(known) => Worker::resume(session.clone(), known),
        None => {
            let id = session
                .try_rows("SELECT postroom.register_instance('victim')")
                .await?
                .remove(0);
            Worker::resume(session.clone(), id)
        }
    };
    *instance = Some(worker.instance.clone());
    loop {
        if !beat(&worker, &mut beaten, lease, instance).await? {
            return Ok(());
        }
        let claimed = match worker.try_claim("max_messages => 20").await {
            Err(error)
                if error
                    .as_db_error()
                    .is_some_and(|error| error.code().code() == "55000") =>
            {
                beaten -= lease;
                continue;
            }
            claimed => claimed?,
        };
        for item in &claimed.items {
            if item.payload == "poison" {
                kill_9(std::process::id() as i32);
            }
            if !beat(&worker, &mut beaten, lease, instance).await? {
                return Ok(());
            }
            let (stream, n) = numbered(&item.payload).unwrap_or_default();
            session
                .try_rows(&format!(
                    "INSERT INTO handled (stream, n, attempt) VALUES ({stream}, {n}, {})",
                    item.attempt
                ))
                .await?;
            session
                .try_rows(&worker.report_sql("complete", item))
                .await?;
        }
        if claimed.items.is_empty() && !claimed.come_back {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Keeps the lease; false when this instance was evicted and must begin anew.
async fn beat(
    worker: &Worker,
    beaten: &mut Instant,
    lease: Duration,
    instance: &mut Option<String>,
) -> Result<bool, Error> {
    if beaten.elapsed() < lease / 4 {
        return Ok(true);
    }
    let now = Instant::now();
    let sql = format!("SELECT postroom.heartbeat_instance('{}')", worker.instance);
    if worker
        .session
        .try_rows(&sql)
        .await?
        .first()
        .map(String::as_str)
        != Some("alive")
    {
        *instance = None;
        return Ok(false);
    }
    *beaten = now;
    Ok(true)
}
