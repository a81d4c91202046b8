//! The crate's client against the real extension: every method once, with its types and errors.

mod operator;
mod parts;
mod producer;
mod worker;

use postroom::Postroom;
use postroom_tests::database::Database;
use tokio_postgres::Client;
use uuid::Uuid;

fn stream() -> Uuid {
    Uuid::now_v7()
}

async fn registered(postroom: &Postroom<'_, Client>) -> Uuid {
    postroom
        .register_instance("tests", None, Some("here"), Some(7), None)
        .await
        .expect("an instance")
}

async fn connect(db: &Database) -> Client {
    let (client, connection) = tokio_postgres::connect(&db.url(), tokio_postgres::NoTls)
        .await
        .expect("a connection");
    tokio::spawn(connection);
    client
}
