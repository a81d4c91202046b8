//! Times in JSON envelopes: RFC 3339 in UTC, to the microsecond, as Postgres reads them.

use std::time::{SystemTime, UNIX_EPOCH};

const SECONDS_PER_DAY: i64 = 86_400;

/// The text that Postgres casts to the same `timestamptz`.
pub(crate) fn text(time: SystemTime) -> String {
    let micros = match time.duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_micros()).unwrap_or(i64::MAX),
        Err(before) => {
            i64::try_from(before.duration().as_micros()).map_or(i64::MIN, |micros| -micros)
        }
    };
    let seconds = micros.div_euclid(1_000_000);
    let (year, month, day) = date(seconds.div_euclid(SECONDS_PER_DAY));
    let second = seconds.rem_euclid(SECONDS_PER_DAY);
    let (shown, era) = if year > 0 {
        (year, "")
    } else {
        (1 - year, " BC")
    };
    format!(
        "{shown:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:06}Z{era}",
        second / 3600,
        second / 60 % 60,
        second % 60,
        micros.rem_euclid(1_000_000),
    )
}

/// Year, month and day of a day counted from 1970-01-01, in the proleptic Gregorian calendar. The
/// year begins in March, so that the leap day is its last.
fn date(day: i64) -> (i64, i64, i64) {
    let since_march = day + 719_468;
    let era = since_march.div_euclid(146_097);
    let day_of_era = since_march.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month + 2) / 5 + 1;
    let calendar_month = if month < 10 { month + 3 } else { month - 9 };
    (
        year_of_era + era * 400 + i64::from(calendar_month <= 2),
        calendar_month,
        day_of_month,
    )
}

/// For `#[serde(serialize_with)]`.
pub(crate) fn serialize<S: serde::Serializer>(
    time: &Option<SystemTime>,
    to: S,
) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => to.serialize_str(&text(*time)),
        None => to.serialize_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times_are_written_as_postgres_reads_them() {
        let at = |seconds| text(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00.000000Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00.000000Z");
        assert_eq!(at(1_735_689_599), "2024-12-31T23:59:59.000000Z");
        assert_eq!(
            text(UNIX_EPOCH + Duration::from_micros(1_700_000_000_123_456)),
            "2023-11-14T22:13:20.123456Z"
        );
        assert_eq!(
            text(UNIX_EPOCH - Duration::from_micros(1)),
            "1969-12-31T23:59:59.999999Z"
        );
        assert!(text(UNIX_EPOCH - Duration::from_secs(2_000 * 366 * 86_400)).ends_with(" BC"));
    }
}
