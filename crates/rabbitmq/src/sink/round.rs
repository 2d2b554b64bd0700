//! One round of publishing on one channel: all sent in order, then all confirms awaited.

use futures_util::future::join_all;
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
    /// The channel can't be used again.
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
    let mut sent: Vec<Result<PublisherConfirm, Fate>> = Vec::new();
    for parcel in &parcels {
        sent.push(match timeout_at(deadline, send(channel, parcel)).await {
            Ok(Ok(confirm)) => Ok(confirm),
            Ok(Err(error)) => Err(Fate::Open(error)),
            Err(_) => Err(Fate::Late),
        });
    }
    let fates = join_all(sent.into_iter().map(|sent| async move {
        match sent {
            Ok(confirm) => match timeout_at(deadline, confirm).await {
                Ok(Ok(confirmation)) => Fate::Answered(judge(&confirmation)),
                Ok(Err(error)) => Fate::Open(error),
                Err(_) => Fate::Late,
            },
            Err(fate) => fate,
        }
    }))
    .await;
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
