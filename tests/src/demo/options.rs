//! What a run is told: by the environment, as make does, and by `--json`.

use std::env;
use std::path::PathBuf;

use super::Outcome;

/// Which broker carries the events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broker {
    /// A private nats-server; the workers publish, receive and apply.
    Nats,
    /// The in-process transport. Its log lives in the parent, which therefore publishes and
    /// receives; the workers, one of which is killed, apply.
    None,
}

#[derive(Debug, Clone)]
pub struct Options {
    /// How many flights to take; all of them without a number.
    pub flights: Option<usize>,
    pub broker: Broker,
    pub csv: PathBuf,
    pub nats_server: PathBuf,
    /// Ends the output with one line of JSON.
    pub json: bool,
    /// Where to draw the throughput over time, if anywhere.
    pub plot: Option<PathBuf>,
}

impl Options {
    pub fn read(arguments: &[String]) -> Outcome<Options> {
        if let Some(unknown) = arguments.iter().find(|argument| *argument != "--json") {
            return Err(format!("unknown argument {unknown}; there is only --json").into());
        }
        Ok(Options {
            flights: flights(env::var("FLIGHTS").ok().as_deref())?,
            broker: broker(env::var("BROKER").ok().as_deref())?,
            csv: path("FLIGHTS_CSV", "data/flights.csv"),
            nats_server: path("NATS_SERVER", "tools/bin/nats-server"),
            json: !arguments.is_empty(),
            plot: env::var_os("PLOT").map(PathBuf::from),
        })
    }
}

/// The variable, or the place where `make` caches the file.
fn path(name: &str, cached: &str) -> PathBuf {
    env::var_os(name).map_or_else(
        || {
            let cache =
                env::var_os("POSTROOM_CACHE").unwrap_or_else(|| "/var/cache/postroom".into());
            PathBuf::from(cache).join(cached)
        },
        PathBuf::from,
    )
}

fn flights(text: Option<&str>) -> Outcome<Option<usize>> {
    match text {
        None | Some("") => Ok(Some(20_000)),
        Some("all") => Ok(None),
        Some(number) => match number.parse() {
            Ok(number) if number > 0 => Ok(Some(number)),
            _ => Err(format!("FLIGHTS={number}: a number above zero, or all").into()),
        },
    }
}

fn broker(text: Option<&str>) -> Outcome<Broker> {
    match text {
        None | Some("" | "nats") => Ok(Broker::Nats),
        Some("none") => Ok(Broker::None),
        Some(other) => Err(format!("BROKER={other}: nats, or none").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twenty_thousand_flights_unless_told_otherwise() {
        assert_eq!(flights(None).unwrap(), Some(20_000));
        assert_eq!(flights(Some("all")).unwrap(), None);
        assert_eq!(flights(Some("7")).unwrap(), Some(7));
        assert!(flights(Some("0")).is_err());
    }

    #[test]
    fn an_unknown_broker_is_refused() {
        assert_eq!(broker(Some("none")).unwrap(), Broker::None);
        assert!(broker(Some("kafka")).is_err());
    }
}
