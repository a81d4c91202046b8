//! The sentences of the document.

use super::super::plan::Cell;

pub fn title(cell: Cell) -> &'static str {
    match cell {
        Cell::Enqueue => "Store, 1,000 a call",
        Cell::Drain100 => "Claim and complete, 100 a call",
        Cell::Drain1000 => "Claim and complete, 1,000 a call",
        Cell::Order => "Strict order, 10,000 streams",
        Cell::Together => "Store and work off at once",
        Cell::Small => "Taking 100 at a backlog of 1,000",
        Cell::SmallHeld => "Taking 100 at a backlog of 1,000, a snapshot held",
        Cell::Large => "Taking 100 at a backlog of 1,000,000",
        Cell::LargeHeld => "Taking 100 at a backlog of 1,000,000, a snapshot held",
        Cell::Append => "Append events, one a call",
        Cell::AppendMany => "Append events, 100 a call",
        Cell::Latency => "Latency at 500 messages a second",
    }
}

pub fn story(cell: Cell) -> &'static str {
    match cell {
        Cell::Enqueue => {
            "Two producers, each call a transaction. postroom by `store_outbox_arrays`, pgmq by `send_batch`, PGQ by `insert_event` over an array; by hand it is one INSERT of an array, and COPY is the limit."
        }
        Cell::Drain100 => {
            "Four workers empty a backlog of 300,000 messages without order: take 100, end them, take the next; two transactions a batch. *One call* is `process_work_batch`, which completes the last batch and claims the next in one transaction; *one transaction* is pgmq's delete and read put into one by the client. By hand the rows stay locked in an open transaction while they are worked on."
        }
        Cell::Drain1000 => {
            "The same with 1,000 a call. The bare statement deletes rows by keys that it was given: nothing can end messages faster while they are rows."
        }
        Cell::Order => {
            "A backlog of 100,000 messages dealt to 10,000 streams in turn, four workers, 100 a call, up to 60 s or until nothing is left; every message's place in its stream is checked. pgmq has three reads for groups: `read_grouped` fills a batch from one group after another, `read_grouped_rr` takes from the groups in turn, `read_grouped_head` takes the first of each; the last two got 10 s. PGQ has one consumer, which sees everything in order, and a batch is what came between two ticks (here each 1,000)."
        }
        Cell::Together => {
            "Two producers and two workers, 100 a call; producers wait while 20,000 messages are under way."
        }
        Cell::Small => {
            "One worker takes 100, ends them, and stores 100 new ones. The time is that of the call that takes."
        }
        Cell::SmallHeld => {
            "The same while another session holds a snapshot: no dead row can be cleared away."
        }
        Cell::Large => "The same with a million messages waiting.",
        Cell::LargeHeld => "The same with a million messages waiting and a snapshot held.",
        Cell::Append => {
            "Eight connections, 1,000 streams, each call a transaction. The bare statement is an INSERT into a table with the same uniqueness of stream and version, whose client knows the versions."
        }
        Cell::AppendMany => "Two connections, 100 events of one stream a call.",
        Cell::Latency => {
            "One producer sends a message every 2 ms; two workers ask every 10 ms when they found nothing, and at once when they found something. A message's time runs from when it was due to be sent until a worker has it: commit, waiting, and claim."
        }
    }
}

/// What a profile of the cell says (`perf record`, `pg_stat_statements` with `track = all`), without its
/// figures: those of a run are in the tables.
pub fn where_it_goes(cell: Cell) -> &'static str {
    match cell {
        Cell::Enqueue => {
            "Most of what postroom does beyond the INSERT is its second index, over lanes, the arrays taken apart and put together again, and the ids."
        }
        Cell::Drain100 | Cell::Drain1000 => {
            "By a profile (perf and pg_stat_statements) postroom's time goes into the DELETE by id (a descent of a unique index each), the scan of lanes with the messages' bodies (each lane's messages lie scattered over the table), the oldest message of every lane (a descent each, so it weighs more the smaller the batch), the row of the claim, and, as for everybody, turning jsonb into text, the wire, and two commits."
        }
        _ => "",
    }
}

pub const IN_SHORT: &str = "A ratio is that of two turns of the same run, of which the median, the least and the most are given: what disturbs the
machine disturbs both alike, if not always equally. A target counts as met if that and the ratio of the medians say so. Processor
time, of server and client, is what a busy machine disturbs least. Where a peer completed nothing, the ratio is a bound: as if the
batches in the hands of its workers had been completed at the last moment.

PGQ is not a rival but a mark to aim at. It keeps no state for a message: a consumer moves a cursor from tick to tick over an
append-only log that is emptied by TRUNCATE, so ending a message costs nothing. What it does not have is the price: no second
consumer may share the work in order, a failed message goes to the end, and a batch ends as a whole.
";

pub const HOW: &str = "One private server, durable as Postgres ships it: fsync, synchronous_commit and full_page_writes are on, and no side gets
another commit mode. Every turn begins in a fresh copy of a database in which the side was installed as its own documents say:
`CREATE EXTENSION postroom` (optimised build), pgmq by the installer and SQL inside its crate, `CREATE EXTENSION pgq` from
Debian's package. Before a turn the last turn's database is dropped, which ends with a checkpoint; backlogs are filled through
the side's own call, then vacuumed and analysed. Sides take turns within a run, another one first each time, so that what
disturbs the machine disturbs all.

All sides get the same payloads (500 bytes of JSON, numbered), the same number of connections, one client library
(tokio-postgres, prepared statements, binary), the same batch, and are asked for the same: id and payload of what is taken,
the number of messages stored or ended. Who finds nothing waits 2 ms. Leases and visibility timeouts are 300 s. pgmq's ordered
queue has the index its documents advise. PGQ's ticker is `pgq.ticker()`, called as `pgqd` calls it.

Processor time is read from /proc: of the sessions that did the work, and of everything else in the server (WAL writer,
checkpointer, autovacuum). WAL is the distance of the insert position, autovacuum's included. Row versions that died are the
server's counts of updates and deletes; growth is that of tables with their indexes, which vacuum gives back for reuse but
seldom to the system. A million messages are filled once a side and used by all runs.

`make bench ONLY=drain100,order` runs some cells, `BENCH_SECONDS=2 BENCH_RUNS=1 make bench` a quick try; the backlogs then shrink
in proportion. Every turn's numbers are in [benchmark/results.json](benchmark/results.json).
";

pub const NOT_COMPARABLE: &str = "* **What a message gets.** postroom recognises a message id it has seen, keeps the order of a stream across workers, counts attempts,
  buries what fails too often, and answers each report. pgmq has a visibility timeout and a counter of reads; its order is in its
  grouped reads only. PGQ has one ordered consumer. By hand there is nothing of this.
* **Keys.** postroom's ids are UUIDs, which can be made by the sender; the others draw numbers. Its store therefore has one random
  or time-ordered unique index more to keep.
* **Claims.** pgmq writes each message anew when it is read (one dead row and about a kilobyte of WAL, then the delete); postroom
  writes one row a batch. By hand a message is locked in an open transaction, so a handler holds one as long as it works.
* **PGQ's batches** are made by ticks, not asked for by number, and the consumer reads a batch again as a whole if it fails.
* **Latency** is that of polling, for all alike. postroom's crate also listens for a ring, pgmq can poll inside the server
  (`read_with_poll`), PGQ waits for the next tick.
* **COPY and the bare statements** do less than any queue must; they show where the floor is.
";
