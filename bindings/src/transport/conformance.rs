//! What every transport must keep, as a test that any implementation can run.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::json;
use uuid::Uuid;

use super::{Envelope, Received, Subscription, Transport, TransportError};

/// How long a reader is given to see what was confirmed.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long to wait for what must not come.
const QUIET: Duration = Duration::from_millis(300);

/// Runs the suite on a source that nothing else uses; answers what was broken, nothing if all is well.
pub async fn check<T: Transport>(transport: &T, source: &str) -> Vec<String> {
    if !transport.ready().await {
        return vec!["ready() is false".to_owned()];
    }
    let (t, s) = (transport, source);
    let findings = [
        (
            "what is confirmed is read, in order",
            reads_in_order(t, s).await,
        ),
        ("reading goes on behind a position", resumes(t, s).await),
        ("all readers see the same order", readers_agree(t, s).await),
        (
            "every field arrives as it was sent",
            fields_arrive(t, s).await,
        ),
        (
            "an empty wait ends, with nothing",
            empty_wait_ends(t, s).await,
        ),
        (
            "a reader sees what comes while it waits",
            sees_what_comes(t, s).await,
        ),
        (
            "a message published twice is not lost",
            repeats_are_harmless(t, s).await,
        ),
        ("acknowledging changes no order", acknowledges(t, s).await),
    ];
    findings.into_iter().filter_map(told).collect()
}

fn told((promise, finding): (&str, Finding)) -> Option<String> {
    match finding {
        Ok(None) => None,
        Ok(Some(what)) => Some(format!("{promise}: {what}")),
        Err(error) => Some(format!("{promise}: {error}")),
    }
}

/// `None` if the promise holds, else what was seen.
type Finding = Result<Option<String>, TransportError>;

/// A message that uses every field.
pub fn sample(destination: &str, n: u32) -> Envelope {
    let raw = |value: serde_json::Value| serde_json::value::to_raw_value(&value).ok();
    Envelope {
        message_id: Uuid::now_v7(),
        stream_id: Some(Uuid::from_u128(u128::from(n % 3) + 1)),
        destination: destination.to_owned(),
        message_type: "conformance.sampled".to_owned(),
        payload: raw(json!({"n": n, "text": "å∂ƒ \" \\ \n"})).unwrap_or_default(),
        metadata: raw(
            json!({"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "ü": [n]}),
        ),
        scope: raw(json!({"tenant": "t"})),
        is_event: n.is_multiple_of(2),
        correlation_id: Some("the request".to_owned()),
        causation_id: Some(Uuid::from_u128(9).to_string()),
        traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned()),
        tracestate: Some("a=1,b=2".to_owned()),
        occurred_at: Some(std::time::UNIX_EPOCH + Duration::from_micros(1_700_000_000_123_456)),
    }
}

async fn publish<T: Transport>(
    transport: &T,
    source: &str,
    count: u32,
) -> Result<Vec<Envelope>, TransportError> {
    let mut sent = Vec::new();
    for n in 0..count {
        let message = sample(source, n);
        transport.publish(&message).await?;
        sent.push(message);
    }
    Ok(sent)
}

/// Reads until nothing comes any more, or `count` messages are there.
async fn read<S: Subscription>(
    reader: &mut S,
    count: usize,
) -> Result<Vec<Received>, TransportError> {
    let mut all = Vec::new();
    let until = tokio::time::Instant::now() + PATIENCE;
    while all.len() < count && tokio::time::Instant::now() < until {
        all.extend(reader.next(count - all.len(), QUIET).await?);
    }
    Ok(all)
}

fn ids(received: &[Received]) -> Vec<Uuid> {
    received
        .iter()
        .filter_map(|one| one.message.as_ref().ok())
        .map(|message| message.message_id)
        .collect()
}

/// A reader that has read everything there is.
async fn at_end<T: Transport>(
    transport: &T,
    source: &str,
) -> Result<(T::Subscription, Option<String>), TransportError> {
    let mut reader = transport.subscribe(source, None).await?;
    let mut position = None;
    loop {
        match reader.next(1_000, QUIET).await?.pop() {
            Some(last) => position = Some(last.position),
            None => return Ok((reader, position)),
        }
    }
}

async fn reads_in_order<T: Transport>(transport: &T, source: &str) -> Finding {
    let (mut reader, _) = at_end(transport, source).await?;
    let sent: Vec<Uuid> = publish(transport, source, 50)
        .await?
        .iter()
        .map(|message| message.message_id)
        .collect();
    let received = read(&mut reader, sent.len()).await?;
    let positions: HashSet<&str> = received.iter().map(|one| one.position.as_str()).collect();
    Ok(if ids(&received) != sent {
        Some(format!("sent {sent:?}, read {:?}", ids(&received)))
    } else if positions.len() != sent.len() {
        Some("two messages have one position".to_owned())
    } else {
        None
    })
}

async fn resumes<T: Transport>(transport: &T, source: &str) -> Finding {
    let (mut reader, _) = at_end(transport, source).await?;
    let sent = publish(transport, source, 10).await?;
    let first = read(&mut reader, 10).await?;
    let Some(middle) = first.get(3) else {
        return Ok(Some("messages are missing".to_owned()));
    };
    drop(reader);
    let mut second = transport.subscribe(source, Some(&middle.position)).await?;
    let rest = read(&mut second, 6).await?;
    let expected: Vec<Uuid> = sent[4..].iter().map(|message| message.message_id).collect();
    Ok((ids(&rest) != expected).then(|| format!("expected {expected:?}, read {:?}", ids(&rest))))
}

async fn readers_agree<T: Transport>(transport: &T, source: &str) -> Finding {
    publish(transport, source, 5).await?;
    let mut all = Vec::new();
    for _ in 0..2 {
        let mut reader = transport.subscribe(source, None).await?;
        let received = read(&mut reader, 65).await?;
        all.push((
            ids(&received),
            received
                .into_iter()
                .map(|one| one.position)
                .collect::<Vec<_>>(),
        ));
    }
    Ok((all[0] != all[1] || all[0].0.len() < 65)
        .then(|| format!("{} and {} messages", all[0].0.len(), all[1].0.len())))
}

async fn fields_arrive<T: Transport>(transport: &T, source: &str) -> Finding {
    let (mut reader, _) = at_end(transport, source).await?;
    let mut bare = sample(source, 1);
    (bare.stream_id, bare.metadata, bare.scope) = (None, None, None);
    (bare.correlation_id, bare.causation_id, bare.traceparent) = (None, None, None);
    (bare.tracestate, bare.occurred_at) = (None, None);
    for sent in [sample(source, 1), sample(source, 2), bare] {
        transport.publish(&sent).await?;
        let got = match read(&mut reader, 1).await?.pop().map(|one| one.message) {
            Some(Ok(message)) => message,
            Some(Err(error)) => return Ok(Some(error.to_string())),
            None => return Ok(Some("nothing arrived".to_owned())),
        };
        // RawValue has no equality; its Debug form is its text.
        if format!("{got:?}") != format!("{sent:?}") {
            return Ok(Some(format!("sent {sent:?}, got {got:?}")));
        }
    }
    Ok(None)
}

async fn empty_wait_ends<T: Transport>(transport: &T, source: &str) -> Finding {
    let (mut reader, _) = at_end(transport, source).await?;
    match tokio::time::timeout(PATIENCE, reader.next(1, QUIET)).await {
        Ok(received) => Ok((!received?.is_empty()).then(|| "something came".to_owned())),
        Err(_) => Ok(Some("it did not end".to_owned())),
    }
}

async fn sees_what_comes<T: Transport>(transport: &T, source: &str) -> Finding {
    let (mut reader, _) = at_end(transport, source).await?;
    let message = sample(source, 1);
    let later = async {
        tokio::time::sleep(QUIET).await;
        transport.publish(&message).await
    };
    let (received, published) = tokio::join!(reader.next(1, PATIENCE), later);
    published?;
    Ok((ids(&received?) != [message.message_id]).then(|| "it did not come".to_owned()))
}

async fn repeats_are_harmless<T: Transport>(transport: &T, source: &str) -> Finding {
    let (mut reader, _) = at_end(transport, source).await?;
    let (first, second) = (sample(source, 1), sample(source, 2));
    for message in [&first, &first, &second] {
        transport.publish(message).await?;
    }
    let mut seen = Vec::new();
    while seen.last() != Some(&second.message_id) {
        match read(&mut reader, 1).await?.pop().map(|one| one.message) {
            Some(Ok(message)) => seen.push(message.message_id),
            _ => return Ok(Some(format!("saw {seen:?} only"))),
        }
    }
    seen.dedup();
    Ok((seen != [first.message_id, second.message_id]).then(|| format!("saw {seen:?}")))
}

async fn acknowledges<T: Transport>(transport: &T, source: &str) -> Finding {
    let (mut reader, position) = at_end(transport, source).await?;
    if let Some(position) = &position {
        reader.acknowledge(position).await?;
    }
    let sent = publish(transport, source, 3).await?;
    let received = read(&mut reader, 3).await?;
    let expected: Vec<Uuid> = sent.iter().map(|message| message.message_id).collect();
    Ok((ids(&received) != expected).then(|| format!("read {:?}", ids(&received))))
}
