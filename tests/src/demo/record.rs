//! One record of the flights file: every column has a form, and what misses it is named.

use std::fmt;

use csv::ByteRecord;

use super::flights::{Ending, Flight};

/// Columns of the file, in its order.
#[derive(Debug, Clone, Copy)]
#[rustfmt::skip]
enum Column {
    Year, Month, Day, DepTime, SchedDepTime, DepDelay, ArrTime, SchedArrTime, ArrDelay, Carrier,
    Flight, Tailnum, Origin, Dest, AirTime, Distance, Hour, Minute, TimeHour,
}

/// As the first line of the file names them.
#[rustfmt::skip]
pub const COLUMNS: [&str; 19] = [
    "year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time",
    "arr_delay", "carrier", "flight", "tailnum", "origin", "dest", "air_time", "distance", "hour",
    "minute", "time_hour",
];

impl fmt::Display for Column {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(COLUMNS[*self as usize])
    }
}

/// A flight, or the first reason why the record is none.
pub fn parse(record: &ByteRecord) -> Result<Flight, String> {
    if record.len() != COLUMNS.len() {
        return Err(format!(
            "{} columns instead of {}",
            record.len(),
            COLUMNS.len()
        ));
    }
    let row = Row(record);
    let scheduled = row.clock(Column::SchedDepTime)?;
    row.rest()?;
    Ok(Flight {
        time_hour: row.hour(Column::TimeHour)?,
        scheduled,
        carrier: row.code(Column::Carrier, 2)?,
        number: row.number(Column::Flight)?,
        day: row.day()?,
        tail: row.optional(Column::Tailnum)?.map(str::to_owned),
        origin: row.code(Column::Origin, 3)?,
        destination: row.code(Column::Dest, 3)?,
        distance: row.number(Column::Distance)?,
        ending: row.ending()?,
    })
}

/// One record, read by column.
struct Row<'a>(&'a ByteRecord);

impl<'a> Row<'a> {
    fn text(&self, column: Column) -> Result<&'a str, String> {
        let bytes = self.0.get(column as usize).unwrap_or_default();
        std::str::from_utf8(bytes).map_err(|error| format!("{column} is not UTF-8: {error}"))
    }

    /// `NA` is how the file says that there is no value.
    fn optional(&self, column: Column) -> Result<Option<&'a str>, String> {
        match self.text(column)? {
            "" => Err(format!("{column} is empty")),
            "NA" => Ok(None),
            text => Ok(Some(text)),
        }
    }

    fn required(&self, column: Column) -> Result<&'a str, String> {
        self.optional(column)?
            .ok_or_else(|| format!("{column} is missing"))
    }

    fn number<N: std::str::FromStr>(&self, column: Column) -> Result<N, String> {
        let text = self.required(column)?;
        text.parse()
            .map_err(|_| format!("{column} is no number of its kind: {text:?}"))
    }

    fn optional_number(&self, column: Column) -> Result<Option<i32>, String> {
        self.optional(column)?
            .map(|_| self.number(column))
            .transpose()
    }

    fn code(&self, column: Column, length: usize) -> Result<String, String> {
        let text = self.required(column)?;
        let sound = text.len() == length
            && text
                .bytes()
                .all(|b| b.is_ascii_uppercase() || b.is_ascii_digit());
        if sound {
            Ok(text.to_owned())
        } else {
            Err(format!("{column} is no code of {length} letters: {text:?}"))
        }
    }

    /// What no event carries must be readable all the same.
    fn rest(&self) -> Result<(), String> {
        self.clock(Column::SchedArrTime)?;
        self.optional_number(Column::ArrTime)?;
        self.number::<u8>(Column::Hour)?;
        self.number::<u8>(Column::Minute).map(drop)
    }

    /// A time of day as hours × 100 + minutes.
    fn clock(&self, column: Column) -> Result<u16, String> {
        let clock: u16 = self.number(column)?;
        if clock <= 2400 && clock % 100 < 60 {
            Ok(clock)
        } else {
            Err(format!("{column} is no time of day: {clock}"))
        }
    }

    fn day(&self) -> Result<String, String> {
        let (year, month, day) = (
            self.number(Column::Year)?,
            self.number(Column::Month)?,
            self.number(Column::Day)?,
        );
        if (1..=days_of(year, month)).contains(&day) {
            return Ok(format!("{year:04}-{month:02}-{day:02}"));
        }
        Err(format!("impossible date: {year}-{month}-{day}"))
    }

    /// `2013-01-01T10:00:00Z`, kept as text: it sorts by time.
    fn hour(&self, column: Column) -> Result<String, String> {
        let text = self.required(column)?;
        let form = "dddd-dd-ddTdd:00:00Z";
        let fits = text.len() == form.len()
            && text.bytes().zip(form.bytes()).all(|(b, f)| {
                if f == b'd' {
                    b.is_ascii_digit()
                } else {
                    b == f
                }
            });
        if fits {
            Ok(text.to_owned())
        } else {
            Err(format!("{column} is no full hour in UTC: {text:?}"))
        }
    }

    fn ending(&self) -> Result<Ending, String> {
        let departed = self.optional_number(Column::DepTime)?;
        let departure_delay = self.optional_number(Column::DepDelay)?;
        let arrival_delay = self.optional_number(Column::ArrDelay)?;
        let air_time = self.optional_number(Column::AirTime)?;
        match (departed, departure_delay, arrival_delay, air_time) {
            (None, None, None, None) => Ok(Ending::Cancelled),
            (None, ..) => Err("delay or air time of a flight that never departed".to_owned()),
            (Some(_), None, ..) => Err("departed without a departure delay".to_owned()),
            (Some(_), Some(departure_delay), None, None) => {
                Ok(Ending::Diverted { departure_delay })
            }
            (Some(_), Some(departure_delay), Some(arrival_delay), Some(air_time)) => {
                Ok(Ending::Arrived {
                    departure_delay,
                    arrival_delay,
                    air_time,
                })
            }
            _ => Err("arrival delay and air time go together".to_owned()),
        }
    }
}

fn days_of(year: u32, month: u32) -> u32 {
    match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if year.is_multiple_of(if year.is_multiple_of(100) { 400 } else { 4 }) => 29,
        2 => 28,
        _ => 0,
    }
}
