//! One round of publishing on one channel: all sent in order, then all confirms awaited.

use lapin::options::BasicPublishOptions;
use lapin::{Channel, Confirmation, PublisherConfirm};
use oncebox_core::SinkError;
use tokio::time::{Instant, timeout_at};

use super::blame::Blame;
use crate::error::Trouble;
use crate::topic::Topic;
use crate::write::Written;

/// A message made ready to go.
#[derive(Debug)]
pub(super) struct Parcel {
    /// Its place in the batch.
    pub(super) index: usize,
    pub(super) topic: Topic,
    /// How people name it.
    pub(super) label: String,
    pub(super) written: Written,
}

impl Parcel {
    pub(super) fn attempted(&self) -> String {
        super::attempted(&self.label, &self.topic.shown())
    }

    pub(super) fn answer(&self, answers: &mut [Option<Result<(), SinkError>>], answer: Result<(), Trouble>) {
        answers[self.index] = Some(answer.map_err(|trouble| trouble.of_sink(self.attempted())));
    }
}

/// How a round ended.
pub(super) struct Round {
    /// Neither the channel nor its connection may be used again. The connection too, even if the broker closed the channel
    /// alone: the client agrees to that at once, and sends what it had queued for the channel afterwards. The broker ends the
    /// connection over it (`expected 'channel.open'`), a moment later than a new channel could be opened there.
    pub(super) is_broken: bool,
    /// Those that the broker certainly did not take, through no fault of theirs.
    pub(super) again: Vec<Parcel>,
}

/// What became of one parcel.
enum Fate {
    Answered(Result<(), Trouble>),
    /// The channel ended first.
    Open(lapin::Error),
    Late,
}

/// Publishes in order and answers for each, except for those that go into another round.
pub(super) async fn publish(
    channel: &Channel,
    parcels: Vec<Parcel>,
    deadline: Instant,
    answers: &mut [Option<Result<(), SinkError>>],
) -> Round {
    let mut sent: Vec<Result<PublisherConfirm, Fate>> = Vec::with_capacity(parcels.len());
    for parcel in &parcels {
        sent.push(match timeout_at(deadline, send(channel, parcel)).await {
            Ok(Ok(confirm)) => Ok(confirm),
            Ok(Err(error)) => Err(Fate::Open(error)),
            Err(_) => Err(Fate::Late),
        });
    }
    // One after the other: most are there by the time that it is their turn, and then cost no timer.
    let mut fates = Vec::with_capacity(sent.len());
    for sent in sent {
        fates.push(match sent {
            Ok(confirm) => match timeout_at(deadline, confirm).await {
                Ok(Ok(confirmation)) => Fate::Answered(judge(&confirmation)),
                Ok(Err(error)) => Fate::Open(error),
                Err(_) => Fate::Late,
            },
            Err(fate) => fate,
        });
    }
    settle(parcels, fates, answers)
}

async fn send(channel: &Channel, parcel: &Parcel) -> Result<PublisherConfirm, lapin::Error> {
    let Topic { exchange, routing_key } = parcel.topic.clone();
    // Otherwise the broker confirms what it drops because no queue is bound for it.
    let options = BasicPublishOptions { mandatory: true, ..Default::default() };
    let properties = parcel.written.properties.clone();
    channel.basic_publish(exchange, routing_key, options, &parcel.written.payload, properties).await
}

fn judge(confirmation: &Confirmation) -> Result<(), Trouble> {
    match confirmation {
        Confirmation::Ack(None) => Ok(()),
        // Confirmed and returned: the broker is done with it because nobody wanted it.
        Confirmation::Ack(Some(_)) => Err(Trouble::configuration(
            "no queue is bound there for this routing key; bind one, and it goes out when it is published again",
        )),
        Confirmation::Nack(_) => {
            Err(Trouble::unavailable("a queue refuses it for now, because it is full or has no majority of its nodes"))
        }
        Confirmation::NotRequested => Err(Trouble::unavailable("the channel confirms nothing")),
    }
}

/// Answers for each. A channel that the broker closed over one parcel took what was before it or not, which nobody knows, and
/// nothing behind it.
fn settle(parcels: Vec<Parcel>, fates: Vec<Fate>, answers: &mut [Option<Result<(), SinkError>>]) -> Round {
    let blame = fates.iter().find_map(|fate| match fate {
        Fate::Open(error) => Blame::read(error),
        _ => None,
    });
    let mut round = Round { is_broken: false, again: Vec::new() };
    let mut is_behind = false;
    for (parcel, fate) in parcels.into_iter().zip(fates) {
        let trouble = match fate {
            Fate::Answered(answer) => {
                parcel.answer(answers, answer);
                continue;
            }
            Fate::Open(error) => Trouble::from(error),
            Fate::Late => Trouble::unavailable("the broker did not confirm it in time; it may have it or not"),
        };
        round.is_broken = true;
        match &blame {
            Some(blame) if blame.is_on(&parcel) => {
                is_behind = true;
                answers[parcel.index] = Some(Err(blame.verdict(&parcel)));
            }
            Some(_) if is_behind => round.again.push(parcel),
            _ => parcel.answer(answers, Err(Trouble::unavailable(trouble.reason))),
        }
    }
    round
}

#[cfg(test)]
mod tests {
    use lapin::ErrorKind;
    use lapin::protocol::{AMQPError, AMQPSoftError};
    use oncebox_core::{Message, SinkErrorKind};

    use super::*;
    use crate::write::{Mode, write};

    fn parcels(topics: &[&str]) -> Vec<Parcel> {
        let parcel = |(index, topic): (usize, &&str)| Parcel {
            index,
            topic: Topic::parse(topic).unwrap(),
            label: index.to_string(),
            written: write(&Message::new("t").with_payload("12345"), Some("us"), Mode::Binary).unwrap(),
        };
        topics.iter().enumerate().map(parcel).collect()
    }

    fn closed(kind: AMQPSoftError, text: &str) -> Fate {
        Fate::Open(ErrorKind::ProtocolError(AMQPError::new(kind.into(), text.into())).into())
    }

    fn settled(topics: &[&str], fates: Vec<Fate>) -> (Vec<Option<SinkErrorKind>>, Vec<usize>, bool) {
        let mut answers = vec![None; topics.len()];
        let round = settle(parcels(topics), fates, &mut answers);
        let kinds = answers.iter().map(|answer| answer.as_ref()?.as_ref().err().map(SinkError::kind)).collect();
        assert!(round.again.iter().all(|parcel| answers[parcel.index].is_none()), "answered, and published again");
        (kinds, round.again.iter().map(|parcel| parcel.index).collect(), round.is_broken)
    }

    #[test]
    fn only_what_is_behind_the_guilty_one_is_published_again() {
        let missing = || closed(AMQPSoftError::NOTFOUND, "NOT_FOUND - no exchange 'x' in vhost '/'");
        let fates = vec![Fate::Answered(Ok(())), missing(), missing(), missing(), missing(), missing()];
        let (kinds, again, broken) = settled(&["q", "q", "x/a", "q", "xx/a", "x/b"], fates);
        // The second was sent before it: the broker may have it, and then it must not be sent twice by us.
        let (unknown, guilty) = (Some(SinkErrorKind::Unavailable), Some(SinkErrorKind::Configuration));
        assert_eq!(kinds, [None, unknown, guilty, None, None, guilty]);
        assert_eq!((again, broken), (vec![3, 4], true));
    }

    #[test]
    fn without_a_guilty_one_nothing_is_published_again() {
        let broken = || closed(AMQPSoftError::RESOURCELOCKED, "RESOURCE_LOCKED - something else");
        let (kinds, again, broken) = settled(&["x/a", "q"], vec![broken(), broken()]);
        assert_eq!(kinds, [Some(SinkErrorKind::Unavailable); 2]);
        assert_eq!((again, broken), (vec![], true));
        let (kinds, again, broken) = settled(&["x/a", "q"], vec![Fate::Answered(Ok(())), Fate::Late]);
        assert_eq!(kinds, [None, Some(SinkErrorKind::Unavailable)]);
        assert_eq!((again, broken), (vec![], true));
    }

    #[test]
    fn a_message_too_large_for_the_broker_is_known_by_its_size() {
        let large =
            || closed(AMQPSoftError::PRECONDITIONFAILED, "PRECONDITION_FAILED - message size 5 larger than max size 4");
        let (kinds, _, _) = settled(&["q"], vec![large()]);
        assert_eq!(kinds, [Some(SinkErrorKind::Refused)]);
    }
}
