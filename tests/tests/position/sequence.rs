//! What was drawn last is never said to be more than it is. While the server logs a draw, a plain read of
//! the sequence sees 32 numbers that are still to come.

use postroom_tests::Database;
use postroom_tests::session::finish;

#[tokio::test]
async fn number_that_is_still_to_come_is_not_settled() {
    let db = Database::create().await;
    db.admin()
        .run(
            "CREATE FUNCTION ahead() RETURNS int LANGUAGE plpgsql AS $$
             DECLARE start timestamptz := clock_timestamp(); settled bigint; times int := 0;
             BEGIN
                 WHILE clock_timestamp() < start + interval '6 s' LOOP
                     settled := postroom.stable_position();
                     IF settled > pg_sequence_last_value('postroom.sequence_order') THEN times := times + 1; END IF;
                 END LOOP;
                 RETURN times;
             END $$",
        )
        .await;
    let draw = "DO $$ DECLARE start timestamptz := clock_timestamp();
         BEGIN
             WHILE clock_timestamp() < start + interval '8 s' LOOP
                 PERFORM nextval('postroom.sequence_order');
             END LOOP;
         END $$";
    let (one, other) = (db.session().await, db.session().await);
    let drawing = [one.start(draw), other.start(draw)];
    let ahead = db.admin().value("SELECT ahead()").await;
    for running in drawing {
        finish(running).await;
    }
    assert_eq!(ahead, "0", "times ahead of the last number");
}
