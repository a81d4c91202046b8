use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use uuid::Uuid;

use super::*;

#[derive(Debug)]
struct Job {
    stream: Option<u128>,
    order: i64,
}

impl Work for Job {
    fn claim_id(&self) -> i64 {
        1
    }
    fn message_id(&self) -> Uuid {
        Uuid::from_u128(self.order as u128)
    }
    fn stream_id(&self) -> Option<Uuid> {
        self.stream.map(Uuid::from_u128)
    }
    fn sequence_order(&self) -> i64 {
        self.order
    }
}

fn jobs(list: &[(u128, i64)]) -> Vec<Job> {
    list.iter()
        .map(|(stream, order)| Job {
            stream: (*stream > 0).then_some(*stream),
            order: *order,
        })
        .collect()
}

/// What was begun and what was reported, in order.
#[derive(Default)]
struct Log {
    begun: Mutex<Vec<i64>>,
    reported: Mutex<Vec<(i64, bool)>>,
}

impl Log {
    async fn run(&self, list: Vec<Job>, parallel: usize, failing: &[i64]) -> Processed<Job> {
        process_in_order(
            list,
            parallel,
            || false,
            |job| async move {
                self.begun.lock().unwrap().push(job.order);
                tokio::task::yield_now().await;
                if failing.contains(&job.order) {
                    Outcome::Failed("no")
                } else {
                    Outcome::Completed
                }
            },
            |job, result| async move {
                self.reported
                    .lock()
                    .unwrap()
                    .push((job.order, result.is_ok()));
                Ok::<(), &str>(())
            },
        )
        .await
    }
}

#[tokio::test]
async fn one_stream_runs_in_order_whatever_the_input() {
    let log = Log::default();
    let done = log
        .run(jobs(&[(1, 3), (1, 1), (1, 5), (1, 2), (1, 4)]), 8, &[])
        .await;
    assert_eq!(*log.begun.lock().unwrap(), [1, 2, 3, 4, 5]);
    assert_eq!((done.completed, done.failed, done.left.len()), (5, 0, 0));
}

#[tokio::test]
async fn a_failure_stops_its_stream_and_no_other() {
    let log = Log::default();
    let done = log
        .run(jobs(&[(1, 1), (1, 2), (1, 3), (2, 4), (2, 5)]), 8, &[2])
        .await;
    let mut reported = log.reported.lock().unwrap().clone();
    reported.sort_unstable();
    assert_eq!(reported, [(1, true), (2, false), (4, true), (5, true)]);
    assert_eq!((done.completed, done.failed, done.skipped), (3, 1, 1));
    assert!(done.left.is_empty());
}

/// Runs jobs that meet: each waits until `together` are running, or a while has passed.
async fn most_at_a_time(list: Vec<Job>, parallel: usize, together: usize) -> usize {
    let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let (running, most) = (&running, &most);
    process_in_order(
        list,
        parallel,
        || false,
        |_| async move {
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            for _ in 0..20 {
                if most.load(Ordering::SeqCst) >= together {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            running.fetch_sub(1, Ordering::SeqCst);
            Outcome::<&str>::Completed
        },
        |_, _| async { Ok::<(), &str>(()) },
    )
    .await;
    most.load(Ordering::SeqCst)
}

#[tokio::test]
async fn streams_overlap_up_to_the_limit_and_one_stream_never() {
    assert_eq!(most_at_a_time(jobs(&[(1, 1), (2, 2)]), 8, 2).await, 2);
    assert_eq!(
        most_at_a_time(jobs(&[(1, 1), (1, 2), (1, 3)]), 8, 2).await,
        1
    );
    assert_eq!(
        most_at_a_time(jobs(&[(1, 1), (2, 2), (3, 3), (4, 4)]), 2, 3).await,
        2
    );
}

#[tokio::test]
async fn stop_leaves_the_rest_untouched() {
    let stop = AtomicBool::new(false);
    let done = process_in_order(
        jobs(&[(1, 1), (1, 2), (1, 3)]),
        1,
        || stop.load(Ordering::SeqCst),
        |_| async {
            stop.store(true, Ordering::SeqCst);
            Outcome::<&str>::Completed
        },
        |_, _| async { Ok::<(), &str>(()) },
    )
    .await;
    assert_eq!((done.completed, done.failed, done.skipped), (1, 0, 0));
    assert_eq!(
        done.left.iter().map(|job| job.order).collect::<Vec<_>>(),
        [2, 3]
    );
}

#[tokio::test]
async fn a_message_given_up_is_neither_done_nor_failed() {
    let done = process_in_order(
        jobs(&[(1, 1), (1, 2), (2, 3)]),
        4,
        || false,
        |job| async move {
            if job.order == 1 {
                Outcome::<&str>::Stopped
            } else {
                Outcome::Completed
            }
        },
        |_, _| async { Ok::<(), &str>(()) },
    )
    .await;
    assert_eq!((done.completed, done.failed), (1, 0));
    assert_eq!(
        done.left.iter().map(|job| job.order).collect::<Vec<_>>(),
        [1, 2]
    );
}

#[tokio::test]
async fn nothing_calls_nothing() {
    let log = Log::default();
    let done = log.run(Vec::new(), 0, &[]).await;
    assert_eq!(done.completed, 0);
    assert!(log.begun.lock().unwrap().is_empty() && log.reported.lock().unwrap().is_empty());
}

#[tokio::test]
async fn messages_without_a_stream_are_independent() {
    let log = Log::default();
    let done = log.run(jobs(&[(0, 1), (0, 2), (0, 3)]), 1, &[1]).await;
    assert_eq!((done.completed, done.failed, done.skipped), (2, 1, 0));
    assert_eq!(most_at_a_time(jobs(&[(0, 1), (0, 2)]), 8, 2).await, 2);
}

#[tokio::test]
async fn a_failing_report_is_no_failure_of_the_message() {
    let done = process_in_order(
        jobs(&[(1, 1), (1, 2)]),
        1,
        || false,
        |_| async { Outcome::<&str>::Completed },
        |_, _| async { Err("the database is away") },
    )
    .await;
    assert_eq!((done.completed, done.failed, done.unreported), (2, 0, 2));
}
