//! What consumers have counted: how long handlers take against how long a delivery is theirs, and keys that clash.

use std::time::Duration;

use oncebox::counters::{Counted, Counters as _, Part, Process, TallyBody};
use oncebox::{Queue, Session as _, StoreError, Transaction as _};

use super::finding::{Finding, Severity};
use crate::backend::Backend;
use crate::file::{ConsumerSpec, Pipeline};
use crate::place::Origin;
use crate::retention::Facts;

/// A process that was not seen for this long does not run.
const SEEN_SECONDS_MAX: i64 = 60;

/// RabbitMQ closes the channel of a consumer that holds a delivery for longer, unless it was told otherwise.
const CONSUMER_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// Conflicts are told where there is more than one in so many messages.
const CONFLICT_SHARE: u64 = 100;

/// How long a delivery is a process's own.
pub(super) fn lease<S: Backend>(spec: &ConsumerSpec, facts: &Facts) -> Option<Lease> {
    match (&spec.from, facts) {
        (Origin::Queue(_), _) => {
            Some(Lease { lasts: Queue::<S>::LEASE, name: "a delivery", fix: "make its statements faster" })
        }
        #[cfg(feature = "brokers")]
        (Origin::Nats { .. }, Facts::Nats(facts)) => {
            let fix = "raise ack_wait of its consumer to twice that, or make its statements faster";
            facts.ack_wait.map(|lasts| Lease { lasts, name: "a delivery (ack_wait)", fix })
        }
        (Origin::RabbitMq { .. }, _) => {
            let fix = "raise consumer_timeout of the broker, or make its statements faster";
            Some(Lease { lasts: CONSUMER_TIMEOUT, name: "a delivery (consumer_timeout, if it is the default)", fix })
        }
        // A record is a process's own as long as its partition is.
        _ => None,
    }
}

/// How long a delivery is a process's own, and what would change that.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lease {
    lasts: Duration,
    name: &'static str,
    fix: &'static str,
}

/// Looks at what the consumers of a file have counted.
pub(super) async fn look<S: Backend>(pipeline: &Pipeline, store: &S, asked: &[Facts], found: &mut Vec<Finding>) {
    // What can't be read here can't be read elsewhere, and is told there.
    let Ok(counted) = read(store).await else { return };
    for (spec, facts) in pipeline.consumers.iter().zip(asked) {
        let Some(body) = body(&counted, &spec.name) else { continue };
        let about = format!("consumer {}", spec.name);
        if let Some(lease) = lease::<S>(spec, facts) {
            found.extend(slow(&about, &body, lease));
            found.extend(held(&about, spec, &body));
        }
        found.extend(conflicts(&about, &body));
    }
}

async fn read<S: Backend>(store: &S) -> Result<Counted, StoreError> {
    let mut tx = store.connect().await?.begin(super::store::LOCK_WAIT).await?;
    let counted = tx.read_counters().await;
    tx.rollback().await;
    counted
}

/// What those who run have counted; if nobody does, all who ever did. So what was mended is forgotten with the next start.
fn body(counted: &Counted, consumer: &str) -> Option<TallyBody> {
    let rows =
        counted.rows.iter().filter(|row| matches!(&row.tally.part, Part::Consumer(name) if name.as_str() == consumer));
    let is_alive = |seen_at: oncebox::Timestamp| counted.now.duration_since(seen_at).as_secs() <= SEEN_SECONDS_MAX;
    let (alive, gone): (Vec<_>, Vec<_>) =
        rows.partition(|row| row.process.id != Process::GONE && is_alive(row.seen_at));
    let rows = if alive.is_empty() { gone } else { alive };
    let mut sum: Option<TallyBody> = None;
    for row in rows {
        sum.get_or_insert_default().add(&row.tally.body);
    }
    sum
}

/// The slowest handler against the lease.
fn slow(about: &str, body: &TallyBody, lease: Lease) -> Option<Finding> {
    let (slowest, calls) = (Duration::from_micros(body.slowest_micros?), body.count("handler_calls"));
    if slowest < lease.lasts / 2 || calls == 0 {
        return None;
    }
    let severity = if slowest < lease.lasts { Severity::Note } else { Severity::Warning };
    let mean = body.count("handler_millis") as f64 / 1e3 / calls as f64;
    let evidence = format!(
        "handler time is {mean:.1} s on average and {:.1} s at most, over {calls} calls, and {} is leased for {:.1} s: it is \
         extended meanwhile, but if the process stalls, the message comes again beside it",
        slowest.as_secs_f64(),
        lease.name,
        lease.lasts.as_secs_f64()
    );
    Some(Finding::new("lease.handler-time", severity, about, evidence, lease.fix))
}

/// What a process of RabbitMQ has prefetched waits there for its turn, and is nobody else's meanwhile.
fn held(about: &str, spec: &ConsumerSpec, body: &TallyBody) -> Option<Finding> {
    let (Origin::RabbitMq { .. }, Some(prefetch)) = (&spec.from, prefetch()) else { return None };
    let (lanes, calls) = (spec.lanes.unwrap_or(super::brokers::LANES).max(1) as u64, body.count("handler_calls"));
    let waits = Duration::from_millis(body.count("handler_millis").checked_div(calls)? * prefetch / lanes);
    if waits < CONSUMER_TIMEOUT {
        return None;
    }
    let evidence = format!(
        "a process has {prefetch} messages prefetched for {lanes} lanes, and at {:.1} s each the last of them waits {} min: \
         longer than the broker lets it (consumer_timeout), and longer than others would need",
        body.count("handler_millis") as f64 / 1e3 / calls as f64,
        waits.as_secs() / 60
    );
    let fix = "take more lanes, or make its statements faster";
    Some(Finding::new("prefetch.too-large", Severity::Warning, about, evidence, fix))
}

#[cfg(feature = "brokers")]
fn prefetch() -> Option<u64> {
    Some(oncebox::rabbitmq::RabbitSource::PREFETCH.into())
}

#[cfg(not(feature = "brokers"))]
fn prefetch() -> Option<u64> {
    None
}

/// Messages that met the key of another.
fn conflicts(about: &str, body: &TallyBody) -> Option<Finding> {
    let (conflicts, arrived) = (body.count("conflicts"), body.count("deliveries"));
    if conflicts == 0 || conflicts * CONFLICT_SHARE < arrived {
        return None;
    }
    let evidence = format!("{conflicts} of {arrived} messages have the key of another message and say something else");
    let fix = "see them with `oncebox parked groups`: either the key is too broad, or a producer uses an id twice";
    Some(Finding::new("key.conflicts", Severity::Warning, about, evidence, fix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(slowest: u64, counts: &[(&str, u64)]) -> TallyBody {
        let counts = counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        TallyBody { counts, slowest_micros: Some(slowest * 1_000_000), ..TallyBody::default() }
    }

    #[test]
    fn handlers_that_take_as_long_as_the_lease_are_told() {
        let lease = Lease { lasts: Duration::from_secs(30), name: "a delivery", fix: "" };
        let counts = [("handler_calls", 10), ("handler_millis", 20_000)];
        assert_eq!(slow("c", &body(14, &counts), lease), None);
        assert_eq!(slow("c", &body(16, &counts), lease).unwrap().severity, Severity::Note);
        let slow = slow("c", &body(31, &counts), lease).unwrap();
        assert_eq!(slow.severity, Severity::Warning);
        assert!(
            slow.evidence.starts_with("handler time is 2.0 s on average and 31.0 s at most, over 10 calls, and a delivery is leased for 30.0 s"),
            "{slow:?}"
        );
    }

    #[test]
    fn conflicts_that_are_no_accident_are_told() {
        assert_eq!(conflicts("c", &body(0, &[("conflicts", 1), ("deliveries", 1_000)])), None);
        assert_eq!(conflicts("c", &body(0, &[("deliveries", 1_000)])), None);
        assert!(conflicts("c", &body(0, &[("conflicts", 20), ("deliveries", 1_000)])).is_some());
    }
}
