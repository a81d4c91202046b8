//! The messages, the same for everybody: 500 bytes of JSON, numbered, of a stream.

use super::json::{Raw, Text};

/// Bytes of a payload.
pub const SIZE: usize = 500;

/// What is handed to a side in one call.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    pub payloads: Vec<Text>,
    /// The stream of each message; empty where nobody asked for order.
    pub streams: Vec<usize>,
}

impl Batch {
    pub fn len(&self) -> usize {
        self.payloads.len()
    }

    pub fn is_empty(&self) -> bool {
        self.payloads.is_empty()
    }
}

/// The message with this number, of this stream.
pub fn payload(number: u64, stream: usize) -> Text {
    let mut text = format!(
        r#"{{"n": {number}, "s": {stream}, "kind": "order.placed", "customer": {{"id": {}, "city": "Oslo"}}, "lines": ["#,
        number * 7 % 100_003
    );
    for line in 0..4 {
        let item = number.wrapping_mul(31).wrapping_add(line) % 9_973;
        let comma = if line > 0 { ", " } else { "" };
        text += &format!(r#"{comma}{{"item": {item}, "count": {}}}"#, line + 1);
    }
    text += r#"], "note": ""#;
    // Digits that differ from message to message: text that repeats would be compressed away.
    let mut mixed = number ^ 0x9e37_79b9_7f4a_7c15;
    while text.len() < SIZE - 2 {
        mixed = mixed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        text.push(char::from(b'a' + (mixed >> 59) as u8 % 26));
    }
    Text(text + r#""}"#)
}

/// Messages without order.
pub fn loose(from: u64, count: usize) -> Batch {
    Batch {
        payloads: (from..).take(count).map(|n| payload(n, 0)).collect(),
        streams: Vec::new(),
    }
}

/// Messages dealt to streams in turn: the one numbered `n` is the `n / streams`-th of its stream.
pub fn ordered(from: u64, count: usize, streams: usize) -> Batch {
    let stream = |n: u64| (n % streams as u64) as usize;
    Batch {
        payloads: (from..)
            .take(count)
            .map(|n| payload(n, stream(n)))
            .collect(),
        streams: (from..).take(count).map(stream).collect(),
    }
}

/// The number of a payload that came back, whichever way the server wrote the JSON.
pub fn number_of(raw: Raw<'_>) -> Option<u64> {
    let text = std::str::from_utf8(raw.0).ok()?;
    let (_, rest) = text.split_once(r#""n":"#)?;
    let digits = rest
        .trim_start()
        .split(|c: char| !c.is_ascii_digit())
        .next()?;
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_is_json_of_the_promised_size_and_keeps_its_number() {
        for number in [0, 7, 123_456_789] {
            let Text(text) = payload(number, 5);
            assert_eq!(text.len(), SIZE);
            let value: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(value["n"], number);
            assert_eq!(number_of(Raw(text.as_bytes())), Some(number));
            // As `jsonb` writes it: shorter keys first.
            assert_eq!(number_of(Raw(value.to_string().as_bytes())), Some(number));
        }
    }
}
