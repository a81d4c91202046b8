//! One record of the flights file: every column has a form, and what misses it is named.

use csv::ByteRecord;

use super::flights::{Ending, Flight};

/// Columns of the file, in its order.
const COLUMNS: [&str; 19] = [
    "year",
    "month",
    "day",
    "dep_time",
    "sched_dep_time",
    "dep_delay",
    "arr_time",
    "sched_arr_time",
    "arr_delay",
    "carrier",
    "flight",
    "tailnum",
    "origin",
    "dest",
    "air_time",
    "distance",
    "hour",
    "minute",
    "time_hour",
];

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
    let scheduled = row.clock("sched_dep_time")?;
    row.clock("sched_arr_time")?;
    row.optional("tailnum")?;
    Ok(Flight {
        time_hour: row.hour("time_hour")?,
        scheduled,
        carrier: row.code("carrier", 2)?,
        number: row.number("flight")?,
        day: row.day()?,
        tail: row.optional("tailnum")?.map(str::to_owned),
        origin: row.code("origin", 3)?,
        destination: row.code("dest", 3)?,
        distance: row.number("distance")?,
        ending: row.ending()?,
    })
}

/// One record, read by column name.
struct Row<'a>(&'a ByteRecord);

impl<'a> Row<'a> {
    fn text(&self, column: &str) -> Result<&'a str, String> {
        let at = COLUMNS
            .iter()
            .position(|name| *name == column)
            .unwrap_or(COLUMNS.len());
        let bytes = self.0.get(at).unwrap_or_default();
        std::str::from_utf8(bytes).map_err(|error| format!("{column} is not UTF-8: {error}"))
    }

    /// `NA` is how the file says that there is no value.
    fn optional(&self, column: &str) -> Result<Option<&'a str>, String> {
        match self.text(column)? {
            "" => Err(format!("{column} is empty")),
            "NA" => Ok(None),
            text => Ok(Some(text)),
        }
    }

    fn required(&self, column: &str) -> Result<&'a str, String> {
        self.optional(column)?
            .ok_or_else(|| format!("{column} is missing"))
    }

    fn number<N: std::str::FromStr>(&self, column: &str) -> Result<N, String> {
        let text = self.required(column)?;
        text.parse()
            .map_err(|_| format!("{column} is no number of its kind: {text:?}"))
    }

    fn optional_number(&self, column: &str) -> Result<Option<i32>, String> {
        self.optional(column)?
            .map(|_| self.number(column))
            .transpose()
    }

    fn code(&self, column: &str, length: usize) -> Result<String, String> {
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

    /// A time of day as hours × 100 + minutes.
    fn clock(&self, column: &str) -> Result<u16, String> {
        let clock: u16 = self.number(column)?;
        if clock <= 2400 && clock % 100 < 60 {
            Ok(clock)
        } else {
            Err(format!("{column} is no time of day: {clock}"))
        }
    }

    fn day(&self) -> Result<String, String> {
        let (year, month, day) = (
            self.number("year")?,
            self.number("month")?,
            self.number("day")?,
        );
        if (1..=days_of(year, month)).contains(&day) {
            return Ok(format!("{year:04}-{month:02}-{day:02}"));
        }
        Err(format!("impossible date: {year}-{month}-{day}"))
    }

    /// `2013-01-01T10:00:00Z`, kept as text: it sorts by time.
    fn hour(&self, column: &str) -> Result<String, String> {
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
        let departed = self.optional_number("dep_time")?;
        let departure_delay = self.optional_number("dep_delay")?;
        let arrival_delay = self.optional_number("arr_delay")?;
        let air_time = self.optional_number("air_time")?;
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
