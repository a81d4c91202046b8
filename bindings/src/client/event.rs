//! Appending and reading events.

use tokio_postgres::types::{Json, Type};
use tokio_postgres::{GenericClient, Row};
use uuid::Uuid;

use super::Postroom;
use crate::error::Error;
use crate::message::NewEvent;
use crate::types::{AppendOutcome, Appended, Event, EventPage, TryAppended, column};

impl<C: GenericClient + Sync> Postroom<'_, C> {
    /// Appends events to a stream. `expected_version`: `None` = any, 0 = the stream must not exist,
    /// n = exactly n. With a destination they are published too. Events that are all stored already
    /// are answered with their versions.
    ///
    /// # Errors
    /// 40002 version conflict, 22023 bad argument, 54000 limit exceeded, those of the database.
    pub async fn append_events(
        &self,
        stream_id: Uuid,
        events: &[NewEvent],
        expected_version: Option<i64>,
        destination: Option<&str>,
    ) -> Result<Vec<Appended>, Error> {
        let rows = self
            .rows(
                "SELECT event_id, version, \"position\"
                   FROM postroom.append_events(stream_id => $1, events => $2, expected_version => $3, destination => $4)",
                &[
                    (&stream_id, Type::UUID),
                    (&Json(events), Type::JSONB),
                    (&expected_version, Type::INT8),
                    (&destination, Type::TEXT),
                ],
            )
            .await?;
        rows.iter().map(appended).collect()
    }

    /// As `append_events`, with the conflict as a value.
    ///
    /// # Errors
    /// 22023 bad argument, 54000 limit exceeded, those of the database.
    pub async fn try_append_events(
        &self,
        stream_id: Uuid,
        events: &[NewEvent],
        expected_version: Option<i64>,
        destination: Option<&str>,
    ) -> Result<TryAppended, Error> {
        let rows = self
            .rows(
                "SELECT outcome, event_id, version, \"position\"
                   FROM postroom.try_append_events(stream_id => $1, events => $2, expected_version => $3, destination => $4)",
                &[
                    (&stream_id, Type::UUID),
                    (&Json(events), Type::JSONB),
                    (&expected_version, Type::INT8),
                    (&destination, Type::TEXT),
                ],
            )
            .await?;
        try_appended(&rows)
    }

    /// A page of one stream, in order of version.
    ///
    /// # Errors
    /// 22023 bad argument, those of the database.
    pub async fn read_stream(
        &self,
        stream_id: Uuid,
        after_version: i64,
        max_events: i32,
    ) -> Result<Vec<Event>, Error> {
        let rows = self
            .rows(
                "SELECT * FROM postroom.read_stream(stream_id => $1, after_version => $2, max_events => $3)",
                &[(&stream_id, Type::UUID), (&after_version, Type::INT8), (&max_events, Type::INT4)],
            )
            .await?;
        rows.iter().map(|row| Event::read(row, stream_id)).collect()
    }

    /// The version of a stream; 0 if it does not exist.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn stream_version(&self, stream_id: Uuid) -> Result<i64, Error> {
        let statement = "SELECT postroom.stream_version(stream_id => $1) AS version";
        let row = self.one(statement, &[(&stream_id, Type::UUID)]).await?;
        Ok(column::<Option<i64>>(&row, "version")?.unwrap_or(0))
    }

    /// A page of the global order, up to the stable position. `event_types`: `None` = all.
    ///
    /// # Errors
    /// 22023 bad argument, 0A000 above READ COMMITTED or on a standby, those of the database.
    pub async fn read_events(
        &self,
        after_position: i64,
        max_events: i32,
        event_types: Option<&[&str]>,
    ) -> Result<EventPage, Error> {
        let rows = self
            .rows(
                "SELECT * FROM postroom.read_events(after_position => $1, max_events => $2, event_types => $3)",
                &[(&after_position, Type::INT8), (&max_events, Type::INT4), (&event_types, Type::TEXT_ARRAY)],
            )
            .await?;
        let mut page = EventPage {
            events: Vec::with_capacity(rows.len()),
            position: after_position,
        };
        for row in &rows {
            page.position = page.position.max(column(row, "position")?);
            if column::<Option<Uuid>>(row, "event_id")?.is_some() {
                page.events
                    .push(Event::read(row, column(row, "stream_id")?)?);
            }
        }
        Ok(page)
    }

    /// No event below or at this position can appear later.
    ///
    /// # Errors
    /// 0A000 above READ COMMITTED or on a standby, those of the database.
    pub async fn stable_position(&self) -> Result<i64, Error> {
        column(
            &self
                .one("SELECT postroom.stable_position() AS n", &[])
                .await?,
            "n",
        )
    }
}

fn appended(row: &Row) -> Result<Appended, Error> {
    Ok(Appended {
        event_id: column(row, "event_id")?,
        version: column(row, "version")?,
        position: column(row, "position")?,
    })
}

/// After a conflict, the one row has no event and tells the version that the stream really has.
fn try_appended(rows: &[Row]) -> Result<TryAppended, Error> {
    let mut answer = TryAppended {
        outcome: AppendOutcome::Appended,
        events: Vec::new(),
        actual_version: None,
    };
    for row in rows {
        answer.outcome = AppendOutcome::parse(column(row, "outcome")?)?;
        if answer.outcome == AppendOutcome::Conflict {
            answer.actual_version = column(row, "version")?;
        } else {
            answer.events.push(appended(row)?);
        }
    }
    Ok(answer)
}
