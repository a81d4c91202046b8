//! A broker that hands over every tenth delivery twice, around any other one.

use std::time::Duration;

use postroom::transport::{Envelope, Received, Subscription, Transport, TransportError};

/// By the place in the broker's order, so that anyone can count them.
pub fn is_repeated(sequence: u64) -> bool {
    sequence.is_multiple_of(10)
}

#[derive(Debug, Clone)]
pub struct Repeating<T>(pub T);

impl<T: Transport> Transport for Repeating<T> {
    type Subscription = RepeatingSubscription<T::Subscription>;

    async fn ready(&self) -> bool {
        self.0.ready().await
    }

    async fn publish(&self, message: &Envelope) -> Result<(), TransportError> {
        self.0.publish(message).await
    }

    async fn subscribe(
        &self,
        source: &str,
        after: Option<&str>,
    ) -> Result<Self::Subscription, TransportError> {
        self.0
            .subscribe(source, after)
            .await
            .map(RepeatingSubscription)
    }
}

pub struct RepeatingSubscription<S>(S);

impl<S: Subscription> Subscription for RepeatingSubscription<S> {
    /// Both copies in one answer: whoever stores answers whole stores both or none.
    async fn next(&mut self, max: usize, wait: Duration) -> Result<Vec<Received>, TransportError> {
        let received = self.0.next(max, wait).await?;
        let mut handed_over = Vec::with_capacity(received.len() + received.len() / 10 + 1);
        for one in received {
            let again = again(&one);
            handed_over.push(one);
            handed_over.extend(again);
        }
        Ok(handed_over)
    }

    async fn acknowledge(&mut self, position: &str) -> Result<(), TransportError> {
        self.0.acknowledge(position).await
    }
}

fn again(one: &Received) -> Option<Received> {
    let repeated = one.position.parse().is_ok_and(is_repeated);
    let message = one.message.as_ref().ok().filter(|_| repeated)?;
    Some(Received {
        position: one.position.clone(),
        message: Ok(message.clone()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use postroom::transport::in_process::InProcess;
    use uuid::Uuid;

    #[tokio::test]
    async fn every_tenth_comes_twice_in_a_row() {
        let transport = Repeating(InProcess::new());
        for _ in 0..25 {
            transport.publish(&message()).await.unwrap();
        }
        let mut reader = transport.subscribe("flights", None).await.unwrap();
        let handed_over = reader.next(100, Duration::from_secs(1)).await.unwrap();
        let positions: Vec<_> = handed_over
            .iter()
            .map(|one| one.position.parse::<u64>().unwrap())
            .collect();
        let mut expected: Vec<u64> = (1..=25).chain([10, 20]).collect();
        expected.sort_unstable();
        assert_eq!(positions, expected);
    }

    fn message() -> Envelope {
        Envelope {
            message_id: Uuid::now_v7(),
            stream_id: None,
            destination: "flights".to_owned(),
            message_type: "FlightScheduled".to_owned(),
            payload: serde_json::from_str("{}").unwrap(),
            metadata: None,
            scope: None,
            is_event: true,
            correlation_id: None,
            causation_id: None,
            traceparent: None,
            tracestate: None,
            occurred_at: None,
        }
    }
}
