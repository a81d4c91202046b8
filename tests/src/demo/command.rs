//! The command of a flight: its events, each with the version it will have in its stream.

use serde_json::{Value, json};

use super::flights::{Ending, Flight};

/// Where the events of flights are published.
pub const DESTINATION: &str = "flights";

/// One event before it is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub kind: &'static str,
    pub payload: Value,
}

/// What happened to a flight, as events that follow version `seen` of its stream.
pub fn events(flight: &Flight, seen: i64) -> Vec<Event> {
    let mut story = vec![("FlightScheduled", scheduled(flight))];
    match flight.ending {
        Ending::Arrived {
            departure_delay,
            arrival_delay,
            air_time,
        } => {
            story.push(("FlightDeparted", json!({ "minutes_late": departure_delay })));
            story.push(("FlightArrived", json!({
                "minutes_late": arrival_delay, "air_time": air_time, "airport": flight.destination,
            })));
        }
        Ending::Diverted { departure_delay } => {
            story.push(("FlightDeparted", json!({ "minutes_late": departure_delay })));
            story.push(("FlightDiverted", json!({})));
        }
        Ending::Cancelled => story.push(("FlightCancelled", json!({}))),
    }
    let key = flight.stream_key();
    story
        .into_iter()
        .zip(seen + 1..)
        .map(|((kind, mut payload), version)| {
            payload["version"] = json!(version);
            payload["aircraft"] = json!(key);
            payload["carrier"] = json!(flight.carrier);
            payload["flight"] = json!(flight.number);
            Event { kind, payload }
        })
        .collect()
}

fn scheduled(flight: &Flight) -> Value {
    json!({
        "day": flight.day,
        "scheduled": format!("{:02}:{:02}", flight.scheduled / 100, flight.scheduled % 100),
        "origin": flight.origin,
        "destination": flight.destination,
        "distance": flight.distance,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flight(ending: Ending) -> Flight {
        Flight {
            time_hour: "2013-01-01T10:00:00Z".into(),
            scheduled: 540,
            carrier: "AA".into(),
            number: 1141,
            day: "2013-01-01".into(),
            tail: Some("N619AA".into()),
            origin: "JFK".into(),
            destination: "MIA".into(),
            distance: 1089,
            ending,
        }
    }

    fn kinds(ending: Ending) -> Vec<&'static str> {
        events(&flight(ending), 0)
            .into_iter()
            .map(|event| event.kind)
            .collect()
    }

    #[test]
    fn every_ending_has_its_story() {
        let arrived = Ending::Arrived {
            departure_delay: 2,
            arrival_delay: 33,
            air_time: 160,
        };
        assert_eq!(
            kinds(arrived),
            ["FlightScheduled", "FlightDeparted", "FlightArrived"]
        );
        assert_eq!(
            kinds(Ending::Diverted { departure_delay: 2 }),
            ["FlightScheduled", "FlightDeparted", "FlightDiverted"]
        );
        assert_eq!(
            kinds(Ending::Cancelled),
            ["FlightScheduled", "FlightCancelled"]
        );
    }

    #[test]
    fn events_carry_the_versions_after_the_one_that_was_seen() {
        let versions: Vec<_> = events(&flight(Ending::Cancelled), 7)
            .iter()
            .map(|e| e.payload["version"].clone())
            .collect();
        assert_eq!(versions, [json!(8), json!(9)]);
    }
}
