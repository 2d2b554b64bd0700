//! `oncebox message`: one message's whole life, as far as it is still known.

use std::process::ExitCode;

use oncebox::quarantine::QuarantineStore;
use oncebox::trail::{LOOKED_AT_MAX, Trails};
use oncebox::{Code, Key, KeyStrategy, Store};
use oncebox_admin::{Admin, DeliveryView, Life, LifeAt, OutboxView, ParkedView, Sought};
use oncebox_pipeline::file::Pipeline;
use oncebox_pipeline::retention::Span;

use super::screen::tame;
use super::tree::Tree;
use super::{At, To, clock, count, on_store};
use crate::fault::fault;
use crate::number::grouped;

/// One message's whole life.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    at: At,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Show what is still known of a message; exits with 1 if that is nothing.
    Show {
        /// Its id.
        #[arg(required_unless_present = "key")]
        id: Option<String>,
        /// Its key instead: `payment:17`, or as another verb shows it.
        #[arg(long, conflicts_with = "id")]
        key: Option<String>,
        /// Who produced it, where ids are unique within a producer (CloudEvents `source`).
        #[arg(long, requires = "id")]
        source: Option<String>,
        /// At this consumer only.
        #[arg(long)]
        consumer: Option<String>,
    },
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Verb::Show { id, key, source, consumer } = args.verb;
    let pipeline = args.at.pipeline()?;
    let named = id.clone().or_else(|| key.clone()).unwrap_or_default();
    let sought = match (&id, &key) {
        (Some(id), _) => Sought::id(id, source.as_deref()),
        (None, key) => Sought::keys(keys(key.as_deref().unwrap_or_default(), pipeline.as_ref())),
    };
    if named.is_empty() {
        return Err(fault(Code::CommandLine, "cannot look for a message without a name: its id or key is empty"));
    }
    let store = args.at.open(To::Look).await?;
    let life = on_store!(store, |store| look(&Admin::new(store), sought, consumer.as_deref()).await)?;
    let by_id = id.is_some();
    args.at.answer(&life, || told(&life, &named, by_id, pipeline.as_ref()))?;
    if life.known {
        return Ok(ExitCode::SUCCESS);
    }
    let what = if by_id { "message" } else { "the message under" };
    let mut says = format!("nothing is known of {what} {}", tame(&named));
    if !life.not_looked_at.is_empty() {
        says += &format!(" among the newest; it may be among the older ones of {}", places(&life));
    }
    Err(fault(Code::NothingKnown, says))
}

async fn look<S: QuarantineStore + Store<Tx: Trails>>(
    admin: &Admin<S>,
    sought: Sought,
    consumer: Option<&str>,
) -> anyhow::Result<Life> {
    Ok(admin.message(sought, consumer).await?)
}

/// The keys that a text may stand for: as it is shown, and as a template of the file would make it.
fn keys(text: &str, pipeline: Option<&Pipeline>) -> Vec<Key> {
    let templates = pipeline.iter().flat_map(|pipeline| &pipeline.consumers).filter_map(|spec| match &spec.key {
        KeyStrategy::Template(template) => template.key_of_text(text),
        _ => None,
    });
    Key::shown_as(text).into_iter().chain(templates).collect()
}

fn told(life: &Life, named: &str, by_id: bool, pipeline: Option<&Pipeline>) -> String {
    let what = life.id.as_deref().unwrap_or(named);
    let what = if by_id || life.id.is_some() { format!("message {what}") } else { format!("the message under {what}") };
    let kind = life.kind.as_ref().map(|kind| format!(" of type {kind}")).unwrap_or_default();
    if !life.known {
        let mut tree = Tree::new(what);
        trail(&mut tree, life, by_id, pipeline);
        return tree.text();
    }
    let mut tree = Tree::new(format!("{what}{kind}"));
    for at in &life.consumers {
        tree.add(consumer(at));
    }
    if life.more_deliveries {
        tree.add(Tree::new("the journal has more deliveries of it; the newest 100 are shown"));
    }
    for copy in &life.queued {
        let state = match copy.visible_at {
            Some(at) => format!("due {}", clock(at)),
            None => "processed".to_owned(),
        };
        let mut line = format!("in queue {} since {}: row {}, {state}", copy.queue, clock(copy.received_at), copy.row);
        line += &format!(", {}", count(copy.deliveries, "delivery").replace("deliverys", "deliveries"));
        line += &copy.error.as_ref().map(|error| format!("; released: {error}")).unwrap_or_default();
        tree.add(Tree::new(line));
    }
    for row in &life.outbox {
        tree.add(Tree::new(format!("it is in the outbox itself: {}", outbox(row))));
    }
    if !life.emitted.is_empty() {
        let mut emitted = Tree::new("emitted");
        for row in &life.emitted {
            emitted.add(Tree::new(format!("message {} of type {}: {}", row.id, row.kind, outbox(row))));
        }
        tree.add(emitted);
    }
    for replay in &life.replays {
        let (id, state, who) = (replay.id.0, replay.state.name(), &replay.who);
        let at = clock(replay.created_at);
        tree.add(Tree::new(format!("in replay {id}, which is {state}; started by {who} at {at}: {}", replay.why)));
    }
    if !life.actions.is_empty() {
        let mut actions = Tree::new("operators");
        for deed in &life.actions {
            let linked = match &deed.linked {
                Some(other) if Some(other) != life.id.as_ref() => format!(" (message {other})"),
                _ => String::new(),
            };
            actions.add(Tree::new(format!("{} {} by {}{linked}: {}", clock(deed.at), deed.verb, deed.who, deed.why)));
        }
        tree.add(actions);
    }
    trail(&mut tree, life, by_id, pipeline);
    tree.text()
}

fn consumer(at: &LifeAt) -> Tree {
    let mut tree = Tree::new(match at.consumer.as_str() {
        "*" => "consumers with global keys".to_owned(),
        name => format!("consumer {name}"),
    });
    // Of a message that is parked, the row says more than the record.
    for record in at.records.iter().filter(|record| record.outcome != "parked" || at.parked.is_empty()) {
        let outcome = record.outcome.replace('_', " ");
        let reason = record.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
        let whose = if record.of_another { "; that was another message with this key" } else { "" };
        tree.add(Tree::new(format!("{outcome} at {}{reason}{whose}", clock(record.at))));
    }
    for parked in &at.parked {
        tree.add(set_aside(parked));
    }
    if let Some(archived) = at.archived {
        let (first, last) = (clock(archived.first_at), clock(archived.last_at));
        tree.add(Tree::new(format!(
            "was applied (archived): handled between {first} and {last}; only its key is kept"
        )));
    }
    if !at.deliveries.is_empty() {
        let mut deliveries = Tree::new("deliveries, the newest first");
        for one in &at.deliveries {
            deliveries.add(Tree::new(delivery(one)));
        }
        tree.add(deliveries);
    }
    if at.records.is_empty() && at.parked.is_empty() && at.archived.is_none() && at.deliveries.is_empty() {
        tree.add(Tree::new("knows nothing of it"));
    }
    tree
}

/// One delivery, from the journal.
fn delivery(one: &DeliveryView) -> String {
    let mut line = format!("{} {}", clock(one.at), one.ended.replace('_', " "));
    line += &one.cause.as_ref().map(|cause| format!(" ({cause})")).unwrap_or_default();
    let which = match (one.was_parked, one.attempt) {
        (true, Some(attempt)) => Some(format!("try {attempt}, from the parked messages")),
        (true, None) => Some("from the parked messages".to_owned()),
        (false, Some(attempt)) => Some(format!("delivery {attempt}")),
        (false, None) => None,
    };
    let took = one.handler_ms.map(|millis| format!("handler {millis} ms"));
    let from = one.coordinate.as_ref().map(|place| format!("at {place}"));
    let rest: Vec<String> = [which, took, from, Some(format!("in {}", one.process))].into_iter().flatten().collect();
    format!("{line}: {}", rest.join(", "))
}

fn set_aside(parked: &ParkedView) -> Tree {
    let class = parked.class.map(|class| format!(", {class}")).unwrap_or_default();
    let tries = count(u64::from(parked.attempts), "attempt");
    let mut tree = Tree::new(format!("parked in row {}: {}{class}, after {tries}", parked.row, parked.state));
    tree.add(Tree::new(format!("failed at {}: {}", clock(parked.last_at), parked.reason)));
    if parked.first_at != parked.last_at {
        tree.add(Tree::new(format!("parked first at {}", clock(parked.first_at))));
    }
    if let Some(at) = parked.due_at {
        tree.add(Tree::new(format!("due {}", clock(at))));
    }
    if parked.is_held_up {
        tree.add(Tree::new("waits behind an earlier message of its order key, which is dead"));
    }
    if let Some(note) = &parked.note {
        tree.add(Tree::new(format!("note: {note}")));
    }
    tree
}

fn outbox(row: &OutboxView) -> String {
    let place = format!("row {} for {}", row.row, row.topic);
    let settled = row.settled_at.map(clock).unwrap_or_default();
    match row.state {
        "sent" => format!("{place}, published at {settled}"),
        "aside" => format!("{place}, refused at {settled}: {}", row.reason.as_deref().unwrap_or_default()),
        "behind" => format!("{place}, emitted at {}, waits behind one that is set aside", clock(row.emitted_at)),
        _ => format!("{place}, emitted at {}, to be published", clock(row.emitted_at)),
    }
}

/// Where older rows were not looked at.
fn places(life: &Life) -> String {
    let name = |place: &&'static str| match *place {
        "queues" => "the queues",
        "parked" => "what is parked",
        "outbox" => "the outbox",
        _ => "the audit log",
    };
    life.not_looked_at.iter().map(name).collect::<Vec<_>>().join(", ")
}

/// How far back all this goes.
fn trail(tree: &mut Tree, life: &Life, by_id: bool, pipeline: Option<&Pipeline>) {
    let mut trail = Tree::new("how far back this goes");
    for at in life.consumers.iter().filter(|at| at.consumer != "*") {
        trail.add(Tree::new(match at.horizon {
            None => format!("{}: every record since it began", at.consumer),
            Some(horizon) => format!("{}: records after {}; older ones are deleted", at.consumer, clock(horizon)),
        }));
        if let Some(checkpoint) = at.checkpoint {
            let line =
                format!("{}: nothing made before its checkpoint, {}, is replayed", at.consumer, clock(checkpoint));
            trail.add(Tree::new(line));
        }
        let spec = pipeline.and_then(|pipeline| pipeline.consumers.iter().find(|spec| spec.name == at.consumer));
        if let Some(spec) = spec.filter(|spec| by_id && at.records.is_empty() && !spec.key.is_message_id()) {
            let line = format!("{} finds messages by `{}`, not by id: look with --key as well", at.consumer, spec.key);
            trail.add(Tree::new(line));
        }
    }
    for line in journals(life, pipeline) {
        trail.add(Tree::new(line));
    }
    trail.add(Tree::new("parked messages, and the replay that revived them last, until they are applied or discarded"));
    trail.add(Tree::new("what operators did: the newest entries of the audit log"));
    trail.add(Tree::new("outbox rows until they are published, or as long as sent ones are kept"));
    trail.add(Tree::new("queues of the store; what waits in a broker is not looked at"));
    if !life.not_looked_at.is_empty() {
        let (rows, entries) = (grouped(LOOKED_AT_MAX.unsigned_abs()), grouped(Life::ENTRIES_MAX as u64));
        let mut line = format!("only the newest rows ({rows}; of the audit log {entries} entries) were looked at in ");
        line += &format!("{}: older ones may be there", places(life));
        trail.add(Tree::new(line));
    }
    tree.add(trail);
}

/// How far back journals go, of the consumers that keep one.
fn journals(life: &Life, pipeline: Option<&Pipeline>) -> Vec<String> {
    let specs = pipeline.into_iter().flat_map(|pipeline| &pipeline.consumers);
    let shown = specs.filter(|spec| life.consumers.iter().any(|at| at.consumer == spec.name));
    let line = |name: &str, kept| format!("{name}: every delivery of the last {}, by its journal", Span(kept));
    shown.filter_map(|spec| Some(line(&spec.name, spec.journal?))).collect()
}
