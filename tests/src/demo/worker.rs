//! A worker process.

use super::{Outcome, children};

pub async fn work(_arguments: &[String]) -> Outcome<()> {
    children::die_with_parent()?;
    children::asked_to_stop().await;
    Ok(())
}
