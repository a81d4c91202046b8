//! A claim call reads claims, then holds, then messages. Here it is stopped in between while a report
//! commits: whatever it has not read yet may only look busier than it is.

use postroom_tests::session::finish;
use postroom_tests::worker::{Item, parse, payloads, send_sql};
use postroom_tests::{Database, Running, Session, Worker};

/// A worker that holds messages 1 to 3 of a stream of which the fourth waits in its lane; another
/// session of it, and one that stops calls by locking a table.
struct Scene {
    db: Database,
    worker: Worker,
    caller: Worker,
    gate: Session,
    items: Vec<Item>,
}

impl Scene {
    async fn set() -> Scene {
        let db = Database::create().await;
        let worker = Worker::register(&db).await;
        assert_eq!(worker.claim().await, []);
        // The low-waters rest: a call then meets in the lane what others have claimed from it.
        db.admin()
            .run("UPDATE postroom.lane_low SET moved_at = clock_timestamp() + interval '1 hour'")
            .await;
        worker.session.run(&send_sql("s", &["1", "2", "3"])).await;
        let items = worker.claim().await;
        assert_eq!(payloads(&items), ["1", "2", "3"]);
        worker.session.run(&send_sql("s", &["4"])).await;
        Scene {
            caller: worker.second_session(&db).await,
            gate: db.session().await,
            worker,
            items,
            db,
        }
    }

    /// A claim call that stands still where it first looks at `table`.
    async fn claim_stopped_at(&self, table: &str) -> Running {
        self.gate
            .run(&format!(
                "BEGIN; LOCK TABLE postroom.{table} IN ACCESS EXCLUSIVE MODE"
            ))
            .await;
        let claiming = self.caller.start_claim();
        self.db
            .wait_blocked_by(&self.caller.session, &self.gate)
            .await;
        claiming
    }

    /// A claim call that stands still where it first looks at claims, until the worker commits: the
    /// gate waits for the worker's open report, and the call behind the gate.
    async fn claim_stopped_at_claims(&self, most: usize) -> Running {
        self.gate.run("BEGIN").await;
        drop(
            self.gate
                .start("LOCK TABLE postroom.claim IN ACCESS EXCLUSIVE MODE"),
        );
        self.db
            .wait_blocked_by(&self.gate, &self.worker.session)
            .await;
        let claiming = self
            .caller
            .session
            .start(&self.caller.claim_sql(&format!("max_messages => {most}")));
        self.db
            .wait_blocked_by(&self.caller.session, &self.gate)
            .await;
        claiming
    }

    /// Lets the stopped call go on; what it answers, by payload.
    async fn go_on(&self, claiming: Running) -> Vec<String> {
        self.gate.run("ROLLBACK").await;
        let claimed = parse(&finish(claiming).await);
        claimed.items.into_iter().map(|item| item.payload).collect()
    }
}

#[tokio::test]
async fn claims_are_read_before_holds_and_messages() {
    let scene = Scene::set().await;
    scene.worker.session.run("BEGIN").await;
    assert_eq!(scene.worker.fail(&scene.items[0], "no").await, "applied");
    let claiming = scene.claim_stopped_at_claims(100).await;
    scene.worker.session.run("COMMIT").await;
    // The claim names nothing any more: only the hold, read later, says that the stream waits.
    assert_eq!(scene.go_on(claiming).await, Vec::<String>::new());
    scene.db.pass_time().await;
    assert_eq!(scene.worker.work_off(4).await, ["1", "2", "3", "4"]);
    scene.db.assert_sound().await;
}

#[tokio::test]
async fn messages_are_read_after_the_claims_that_name_them() {
    let scene = Scene::set().await;
    scene.worker.session.run("BEGIN").await;
    scene.worker.complete(&scene.items).await;
    let claiming = scene.claim_stopped_at_claims(1).await;
    scene.worker.session.run("COMMIT").await;
    // Whoever looked at the lane before the claims takes what is done for free, and fills its hand.
    assert_eq!(scene.go_on(claiming).await, ["4"]);
    scene.db.assert_sound().await;
}

#[tokio::test]
async fn completion_after_the_claims_were_read_leaves_the_stream_busy() {
    let scene = Scene::set().await;
    let claiming = scene.claim_stopped_at("lane").await;
    scene.worker.complete(&scene.items).await;
    assert_eq!(scene.go_on(claiming).await, Vec::<String>::new());
    assert_eq!(scene.worker.work_off(1).await, ["4"]);
    scene.db.assert_sound().await;
}

#[tokio::test]
async fn failure_after_the_claims_were_read_offers_nothing_early() {
    let scene = Scene::set().await;
    let claiming = scene.claim_stopped_at("lane").await;
    assert_eq!(scene.worker.fail(&scene.items[1], "no").await, "applied");
    assert_eq!(scene.go_on(claiming).await, Vec::<String>::new());
    scene.worker.complete(&scene.items[..1]).await;
    assert_eq!(scene.worker.claim().await, []);
    scene.db.pass_time().await;
    assert_eq!(scene.worker.work_off(3).await, ["2", "3", "4"]);
    scene.db.assert_sound().await;
}
