//! An order and the message about it, in one transaction; a worker brings the message out.
//!
//! `DATABASE_URL=postgres://localhost/shop cargo run -p postroom --example orders`

use std::time::Duration;

use postroom::transport::in_process::InProcess;
use postroom::worker::{Receive, Worker, handler_fn};
use postroom::{BoxError, OutboxMessage, Postroom};
use serde_json::json;
use tokio_postgres::{Client, Config};

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let config: Config = std::env::var("DATABASE_URL")?.parse()?;
    let (mut database, connection) = config.connect(tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    Postroom::connect(&database).await?;
    database
        .batch_execute(
            "CREATE TABLE IF NOT EXISTS orders (id int); CREATE TABLE IF NOT EXISTS bills (id int)",
        )
        .await?;

    place_order(&mut database, 17).await?;

    let broker = InProcess::new();
    let worker = Worker::new(config, "shop")
        .publish(broker.clone())
        .receive(Receive::new("billing", broker.clone(), "orders"))
        .handle(
            "billing",
            handler_fn(|work, transaction| {
                Box::pin(async move {
                    let order = work.payload::<serde_json::Value>()?["order"]
                        .as_i64()
                        .and_then(|id| i32::try_from(id).ok());
                    transaction
                        .execute("INSERT INTO bills VALUES ($1)", &[&order])
                        .await?;
                    println!("billed {order:?}");
                    Ok(())
                })
            }),
        )
        .start();
    tokio::time::sleep(Duration::from_secs(2)).await;
    worker.shutdown(Duration::from_secs(10)).await;
    println!("{} published", broker.published().len());
    Ok(())
}

async fn place_order(database: &mut Client, order: i32) -> Result<(), BoxError> {
    let transaction = database.transaction().await?;
    transaction
        .execute("INSERT INTO orders VALUES ($1)", &[&order])
        .await?;
    let message =
        OutboxMessage::new("order.placed", &json!({"order": order}))?.destination("orders");
    Postroom::new(&transaction)
        .store_outbox_messages(&[message])
        .await?;
    transaction.commit().await?;
    Ok(())
}
