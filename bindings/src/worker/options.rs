//! How a worker works.

use std::time::Duration;

use crate::message::Json;

/// How a worker works. Sizes and times that the server knows are its settings unless given here.
#[derive(Debug, Clone)]
pub struct Options {
    /// Pause after a claim that found nothing; after work it begins with a sixteenth. 250 ms.
    pub poll: Duration,
    /// Longest pause of a worker that [listens](super::Worker::listen) and so is rung for. 10 s.
    pub longest_poll: Duration,
    /// Messages that are being published at a time. 32.
    pub publishing: usize,
    /// Messages of each inbox that are being handled at a time, each on a connection. 8.
    pub handling: usize,
    /// Messages of each queue that are claimed at a time and not done yet. 400.
    pub in_hand: usize,
    /// Messages of one claim; `None` = `postroom.max_messages`.
    pub max_messages: Option<i32>,
    /// Streams of one claim; `None` = `postroom.max_streams`.
    pub max_streams: Option<i32>,
    /// Lease of a claim; `None` = `postroom.lease`.
    pub lease: Option<Duration>,
    /// How often to call [`run_upkeep`](crate::Postroom::run_upkeep); `None` leaves it to others. 5 min.
    pub upkeep: Option<Duration>,
    /// Shown in `postroom.instance`.
    pub host_name: Option<String>,
    /// Shown in `postroom.instance`.
    pub metadata: Option<Json>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            poll: Duration::from_millis(250),
            longest_poll: Duration::from_secs(10),
            publishing: 32,
            handling: 8,
            in_hand: 400,
            max_messages: None,
            max_streams: None,
            lease: None,
            upkeep: Some(Duration::from_secs(300)),
            host_name: None,
            metadata: None,
        }
    }
}
