//! The DETAIL of the extension's errors.

use std::collections::BTreeMap;

/// `a=1 b=two words c=3`: a value goes on until the next word with an equals sign.
pub(super) fn pairs(text: &str) -> BTreeMap<String, String> {
    let mut found: Vec<(String, String)> = Vec::new();
    for word in text.split_whitespace() {
        match word.split_once('=') {
            Some((key, value)) if is_key(key) => found.push((key.to_owned(), value.to_owned())),
            _ => {
                if let Some((_, value)) = found.last_mut() {
                    value.push(' ');
                    value.push_str(word);
                }
            }
        }
    }
    found.into_iter().collect()
}

fn is_key(word: &str) -> bool {
    !word.is_empty()
        && word
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detail_is_read_as_pairs() {
        let read = pairs("stream_id=0197 expected=3 actual=4 reason=two words");
        assert_eq!(read["expected"], "3");
        assert_eq!(read["actual"], "4");
        assert_eq!(read["reason"], "two words");
        assert!(pairs("no pairs here").is_empty());
        assert!(pairs("").is_empty());
    }
}
