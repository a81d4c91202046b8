//! What lapsed comes alone, one at a time.

use std::collections::HashSet;

use postroom_tests::worker::{payloads, send_sql};
use postroom_tests::{Database, Worker};

use crate::lapse;

#[tokio::test]
async fn suspects_travel_alone_so_that_the_poison_is_buried_without_its_neighbours() {
    let db = Database::create_with(&[("postroom.max_attempts", "4")]).await;
    let worker = Worker::register(&db).await;
    for n in 0..20 {
        let label = if n == 7 {
            "poison".to_string()
        } else {
            format!("m{n}")
        };
        worker
            .session
            .run(&send_sql(&format!("s{n}"), &[&label]))
            .await;
    }
    let mut done = HashSet::new();
    let mut crashes = 0;
    loop {
        db.pass_time().await;
        let items = worker.claim().await;
        if items.is_empty() {
            break;
        }
        if items.iter().any(|item| item.payload == "poison") {
            // The process dies before anything of this claim is reported.
            crashes += 1;
            assert!(crashes < 20, "it never ends");
            if crashes > 1 {
                assert_eq!(items.len(), 1, "after its first lapse it travels alone");
            }
            lapse(&db, &items).await;
            continue;
        }
        worker.complete(&items).await;
        done.extend(items.into_iter().map(|item| item.payload));
    }
    assert_eq!(crashes, 4);
    assert_eq!(done.len(), 19, "the innocents survive");
    assert_eq!(
        db.admin()
            .rows("SELECT payload FROM postroom.dead_letter")
            .await,
        ["\"poison\""]
    );
    assert_eq!(
        db.admin()
            .number("SELECT count(*) FROM postroom.outbox")
            .await,
        0
    );
    db.assert_sound().await;
}

#[tokio::test]
async fn one_suspect_at_a_time_is_out() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    for n in 0..5 {
        worker
            .session
            .run(&send_sql(
                &format!("s{n}"),
                &[&format!("a{n}"), &format!("b{n}")],
            ))
            .await;
    }
    let items = worker.claim().await;
    assert_eq!(items.len(), 10);
    lapse(&db, &items).await;
    let suspect = worker.claim_some().await;
    assert_eq!(suspect.len(), 1, "its head alone, without its followers");
    assert_eq!(suspect[0].attempt, 2);
    worker.session.run(&send_sql("fresh", &["fresh"])).await;
    assert_eq!(
        payloads(&worker.claim().await),
        ["fresh"],
        "others go on, no second suspect"
    );
    assert_eq!(worker.claim().await, []);
    assert_eq!(worker.complete(&suspect).await, ["applied"]);
    let mut done = 1;
    while done < 10 {
        let items = worker.claim_some().await;
        done += worker.complete(&items).await.len();
    }
    db.assert_sound().await;
}
