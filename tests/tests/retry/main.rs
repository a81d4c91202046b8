//! Work that waits returns in order, and is finally buried.

mod bury;
mod fail;
mod share;
mod suspect;

use std::collections::HashSet;

use postroom_tests::Database;
use postroom_tests::worker::Item;

/// Lapses the claim of `items` and calls until its messages come again.
async fn lapse(db: &Database, items: &[Item]) {
    let claims: HashSet<&String> = items.iter().map(|item| &item.claim).collect();
    for claim in claims {
        db.lapse(claim).await;
    }
}
