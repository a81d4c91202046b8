//! Flights from a CSV file. A line that cannot be a flight is returned with its number and the
//! reason, and stops nothing; the readable ones come back in the order of their departures.

use std::fmt;
use std::fs::File;
use std::path::Path;

use csv::{ByteRecord, ReaderBuilder};

use super::Outcome;
use super::record::{COLUMNS, parse};

/// How a flight ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Arrived {
        departure_delay: i32,
        arrival_delay: i32,
        air_time: i32,
    },
    Diverted {
        departure_delay: i32,
    },
    Cancelled,
}

/// One flight as it was planned and as it went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flight {
    pub time_hour: String,
    pub scheduled: u16,
    pub carrier: String,
    pub number: u32,
    pub day: String,
    pub tail: Option<String>,
    pub origin: String,
    pub destination: String,
    pub distance: u32,
    pub ending: Ending,
}

impl Flight {
    /// What the file is ordered by; no two flights of it agree in all four.
    pub fn order(&self) -> (&str, u16, &str, u32) {
        (&self.time_hour, self.scheduled, &self.carrier, self.number)
    }

    /// The key of the stream: the aircraft, or the flight itself where no aircraft is known.
    pub fn stream_key(&self) -> String {
        match &self.tail {
            Some(tail) => tail.clone(),
            None => format!("{} {} {}", self.carrier, self.number, self.time_hour),
        }
    }
}

/// A line that is no flight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    pub line: u64,
    pub reason: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "line {}: {}", self.line, self.reason)
    }
}

/// Reads a whole file: its flights in order, and its broken lines.
pub fn read(path: &Path) -> Outcome<(Vec<Flight>, Vec<Broken>)> {
    // Quotes mean nothing in this file; taken for quotes, a stray one would swallow the lines after it.
    let mut reader = ReaderBuilder::new()
        .flexible(true)
        .quoting(false)
        .from_reader(File::open(path)?);
    if reader
        .byte_headers()?
        .iter()
        .ne(COLUMNS.iter().map(|name| name.as_bytes()))
    {
        return Err(format!(
            "the first line does not name the columns {}",
            COLUMNS.join(",")
        )
        .into());
    }
    let mut flights = Vec::new();
    let mut broken = Vec::new();
    let mut record = ByteRecord::new();
    while reader.read_byte_record(&mut record)? {
        let line = record.position().map_or(0, csv::Position::line);
        match parse(&record) {
            Ok(flight) => flights.push(flight),
            Err(reason) => broken.push(Broken { line, reason }),
        }
    }
    flights.sort_by(|a, b| a.order().cmp(&b.order()));
    Ok((flights, broken))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,flight,tailnum,origin,dest,air_time,distance,hour,minute,time_hour\n";
    const ARRIVED: &str =
        "2013,1,1,542,540,2,923,850,33,AA,1141,N619AA,JFK,MIA,160,1089,5,40,2013-01-01T10:00:00Z\n";
    const EARLIER: &str =
        "2013,1,1,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z\n";
    const CANCELLED: &str =
        "2013,1,2,NA,1545,NA,NA,1910,NA,AA,133,NA,JFK,LAX,NA,2475,15,45,2013-01-02T20:00:00Z\n";
    const DIVERTED: &str = "2013,1,1,1525,1530,-5,1934,1805,NA,MQ,4525,N719MQ,LGA,XNA,NA,1147,15,30,2013-01-01T20:00:00Z\n";

    fn read_text(lines: &[&str]) -> (Vec<Flight>, Vec<Broken>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("flights.csv");
        std::fs::write(&path, lines.concat()).unwrap();
        read(&path).unwrap()
    }

    #[test]
    fn flights_come_in_the_order_of_their_departures() {
        let (flights, broken) = read_text(&[HEADER, CANCELLED, ARRIVED, EARLIER]);
        assert_eq!(broken, []);
        assert_eq!(
            flights.iter().map(|f| f.number).collect::<Vec<_>>(),
            [1545, 1141, 133]
        );
    }

    #[test]
    fn an_ending_follows_from_departure_and_air_time() {
        let (flights, _) = read_text(&[HEADER, ARRIVED, DIVERTED, CANCELLED]);
        let endings: Vec<_> = flights.iter().map(|f| f.ending).collect();
        let arrived = Ending::Arrived {
            departure_delay: 2,
            arrival_delay: 33,
            air_time: 160,
        };
        assert_eq!(
            endings,
            [
                arrived,
                Ending::Diverted {
                    departure_delay: -5
                },
                Ending::Cancelled
            ]
        );
    }

    #[test]
    fn a_flight_without_aircraft_is_a_stream_of_its_own() {
        let (flights, _) = read_text(&[HEADER, ARRIVED, CANCELLED]);
        assert_eq!(flights[0].stream_key(), "N619AA");
        assert_eq!(flights[1].stream_key(), "AA 133 2013-01-02T20:00:00Z");
    }

    #[test]
    fn other_columns_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("flights.csv");
        std::fs::write(&path, HEADER.replace("year,month", "month,year")).unwrap();
        assert!(read(&path).is_err());
    }

    #[test]
    fn a_stray_quote_swallows_no_line() {
        let quoted = ARRIVED.replace("AA,1141", "\"A,1141");
        let (flights, broken) = read_text(&[HEADER, &quoted, EARLIER]);
        assert_eq!((flights.len(), broken.len()), (1, 1));
    }

    #[test]
    fn every_broken_line_is_told_with_number_and_reason() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("demo/broken.csv");
        let (flights, broken) = read(&path).unwrap();
        assert_eq!(flights, []);
        let told: Vec<String> = broken.iter().map(Broken::to_string).collect();
        assert_eq!(
            told,
            [
                "line 2: 12 columns instead of 19",
                "line 3: 20 columns instead of 19",
                "line 4: sched_dep_time is no number of its kind: \"five\"",
                "line 5: impossible date: 2013-2-30",
                "line 6: carrier is empty",
                "line 7: tailnum is not UTF-8: invalid utf-8 sequence of 1 bytes from index 2",
                "line 8: sched_dep_time is no time of day: 1275",
                "line 9: delay or air time of a flight that never departed",
                "line 10: distance is no number of its kind: \"-1089\"",
                "line 11: time_hour is no full hour in UTC: \"2013-01-01 around ten\"",
            ]
        );
    }
}
