//! `[[consumer]]` and what it does with messages.

use std::time::Duration;

use oncebox::key::{KeyStrategy, Template};
use oncebox::{ConsumerName, Content, Guarantee};
use toml::de::DeValue;

use super::retention::{self, RetentionSpec};
use super::table::{Field, Table, listed, nearest};
use crate::payload;
use crate::place::Origin;
use crate::shape::{Shape, Text};
use crate::sql::{self, Statement};

/// A consumer of the file.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConsumerSpec {
    /// Its name, which its records are kept under.
    pub name: String,
    /// Where its messages come from.
    pub from: Origin,
    /// What makes two messages the same.
    pub key: KeyStrategy,
    /// What made two messages the same before, where that was something else: the change is bridged.
    pub key_was: Option<KeyStrategy>,
    /// The fields in which two messages with one key must agree; absent, their whole payloads.
    pub fingerprint: Option<Vec<String>>,
    /// Within what order is kept.
    pub order_by: Option<Template>,
    /// Within what order was kept before, `Some(None)` for none, where that was something else.
    pub order_by_was: Option<Option<Template>>,
    /// What counts its versions.
    pub version: Option<Template>,
    /// How long its records are kept.
    pub retention: RetentionSpec,
    /// For how long a journal of every delivery is kept; absent: none is.
    pub journal: Option<Duration>,
    /// Whether it asks the archive of keys about what has no record.
    pub ask_archive: bool,
    /// What it does about failures.
    pub retry: RetrySpec,
    /// How many messages it handles side by side.
    pub lanes: Option<usize>,
    /// What it must be able to promise.
    pub require: Option<Guarantee>,
    /// Whether it creates its queue or consumer on the broker.
    pub create: bool,
    /// Kafka: where a group begins that has no offset yet.
    pub start: StartSpec,
    /// What it does, by type.
    pub on: Vec<On>,
    /// Where it stands in the file.
    pub line: usize,
}

impl ConsumerSpec {
    /// What tells messages with one key apart.
    pub fn content(&self) -> Content {
        self.fingerprint.as_ref().map_or_else(Content::default, Content::only)
    }

    /// Whether the two take messages away from each other. Groups of Kafka and durable consumers of NATS are called like the
    /// consumer, unless the file says otherwise, and each of those gets every message.
    pub(super) fn competes_with(&self, other: &Self) -> bool {
        match (&self.from, &other.from) {
            (Origin::Kafka { .. }, _) => false,
            (Origin::Nats { url, stream, durable }, Origin::Nats { url: url2, stream: stream2, durable: durable2 }) => {
                let named = durable.as_ref().unwrap_or(&self.name) == durable2.as_ref().unwrap_or(&other.name);
                named && (url, stream) == (url2, stream2)
            }
            (one, two) => one == two,
        }
    }
}

/// Retries of a consumer; absent parts keep the engine's defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetrySpec {
    /// How often, the first time included.
    pub attempts: Option<u32>,
    /// The first delay.
    pub first: Option<Duration>,
    /// The longest delay.
    pub max: Option<Duration>,
}

/// Where a group begins that has no offset yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartSpec {
    /// It does not: a person must say.
    #[default]
    Stop,
    /// At the oldest message.
    Beginning,
    /// After the newest.
    End,
}

/// What is done with messages of one type.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct On {
    /// The type.
    pub kind: String,
    /// What runs in the message's transaction, in order.
    pub sql: Vec<Statement>,
    /// What is emitted with it.
    pub emit: Vec<Emit>,
    /// Where it stands in the file.
    pub line: usize,
}

/// A message to emit.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Emit {
    /// Its type.
    pub kind: String,
    /// Where to.
    pub topic: Text,
    /// Its order key.
    pub key: Option<Text>,
    /// Its payload.
    pub payload: Shape,
}

pub(super) fn read(field: &Field<'_>) -> Option<ConsumerSpec> {
    let table = field.table("[[consumer]]")?;
    let name = table.required("name").and_then(|name| {
        name.read(|text| ConsumerName::new(text).map(|_| text.to_owned()).map_err(|error| error.to_string()))
    });
    let from = table.required("from").and_then(|from| from.read_address(Origin::parse));
    let key = table.field("key").map_or(Some(KeyStrategy::MessageId), |key| key.read(read_key));
    let key_was = table.field("key_was").and_then(|key| key.read(read_key));
    let fingerprint = table.field("fingerprint");
    let fingerprint = fingerprint.map(|field| field.elements().iter().filter_map(|field| field.text()).collect());
    let template = |name| table.field(name).and_then(|field: Field<'_>| field.read(Template::parse));
    let (order_by, version) = (template("order_by"), template("version"));
    let order_by_was = table.field("order_by_was").and_then(|field| {
        field.read(|text| match text {
            "none" => Ok(None),
            text => Template::parse(text).map(Some),
        })
    });
    if version.is_some() && table.field("order_by").is_none() {
        table.mistake("`version` in [[consumer]] needs `order_by`: it says whose versions they are");
    }
    let retention = retention::read(&table);
    let journal = retention::journal(&table);
    let ask_archive = table.field("ask_archive").and_then(|field| field.boolean()).unwrap_or(false);
    let retry = table.field("retry").map_or_else(RetrySpec::default, |field| read_retry(&field));
    let lanes = table.field("lanes").and_then(|field| field.count()).map(|lanes| lanes as usize);
    let require = table.field("require").and_then(|field| choice(&field, &GUARANTEES));
    let create = table.field("create").and_then(|field| field.boolean()).unwrap_or(false);
    let start = table.field("start").and_then(|field| choice(&field, &STARTS)).unwrap_or_default();
    let on: Vec<On> = match table.required("on") {
        Some(field) => field.elements().iter().filter_map(read_on).collect(),
        None => Vec::new(),
    };
    for (place, one) in on.iter().enumerate() {
        if on[..place].iter().any(|other| other.kind == one.kind) {
            table.mistake_at(one.line, format!("there are two [[consumer.on]] of type `{}`", one.kind));
        }
    }
    table.finish();
    Some(ConsumerSpec {
        name: name?,
        from: from?,
        key: key?,
        key_was,
        fingerprint,
        order_by,
        order_by_was,
        version,
        retention,
        journal,
        ask_archive,
        retry,
        lanes,
        require,
        create,
        start,
        on,
        line: table.line,
    })
}

const GUARANTEES: [(&str, Guarantee); 3] = [
    ("effectively-once", Guarantee::EffectivelyOnce),
    ("once-per-sending", Guarantee::OncePerSending),
    ("at-least-once", Guarantee::AtLeastOnce),
];

const STARTS: [(&str, StartSpec); 3] =
    [("stop", StartSpec::Stop), ("beginning", StartSpec::Beginning), ("end", StartSpec::End)];

/// One of a few words.
fn choice<T: Copy>(field: &Field<'_>, choices: &[(&str, T)]) -> Option<T> {
    let text = field.text()?;
    let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
    let chosen = choices.iter().find(|(name, _)| *name == text).map(|(_, value)| *value);
    if chosen.is_none() {
        let advice = nearest(&text, &names)
            .map_or_else(|| format!("it is one of {}", listed(&names)), |nearest| format!("did you mean `{nearest}`?"));
        field.mistake_in_text(format!("`{text}` is not possible; {advice}"));
    }
    chosen
}

fn read_key(text: &str) -> Result<KeyStrategy, String> {
    match text {
        "message-id" => Ok(KeyStrategy::MessageId),
        "content-hash" | "content-hash/2" => Ok(KeyStrategy::ContentHash(Content::default())),
        "content-hash/1" => Ok(KeyStrategy::ContentHashV1(Content::default())),
        "broker-coordinate" => Ok(KeyStrategy::Coordinate),
        text if text.contains('{') => {
            Template::parse(text).map(KeyStrategy::Template).map_err(|error| error.to_string())
        }
        text => {
            let known = ["message-id", "content-hash", "broker-coordinate"];
            let advice = nearest(text, &known).map_or_else(
                || "it is `message-id`, `content-hash`, `broker-coordinate` or a text with fields: `payment:{payment_id}`".to_owned(),
                |nearest| format!("did you mean `{nearest}`?"),
            );
            Err(format!("`{text}` is no key; {advice}"))
        }
    }
}

fn read_retry(field: &Field<'_>) -> RetrySpec {
    let Some(table) = field.table("`retry`") else { return RetrySpec::default() };
    let retry = RetrySpec {
        attempts: table.field("attempts").and_then(|field| match field.count()? {
            0 => {
                field.mistake("the first time counts: write at least 1");
                None
            }
            attempts => Some(u32::try_from(attempts).unwrap_or(u32::MAX)),
        }),
        first: table.field("first").and_then(|field| field.duration()),
        max: table.field("max").and_then(|field| field.duration()),
    };
    if let (Some(first), Some(max)) = (retry.first, retry.max)
        && first > max
    {
        table.mistake("`retry`: `first` is longer than `max`, the longest wait");
    }
    table.finish();
    retry
}

fn read_on(field: &Field<'_>) -> Option<On> {
    let table = field.table("[[consumer.on]]")?;
    let kind = table.required("type").and_then(|kind| kind.read(named));
    let sql = read_sql(&table);
    let emit: Vec<Emit> = match table.field("emit") {
        Some(field) => field.elements().iter().filter_map(read_emit).collect(),
        None => Vec::new(),
    };
    if table.field("sql").is_none() && table.field("emit").is_none() {
        table.mistake("[[consumer.on]] does nothing; give it `sql`, `emit` or both");
    }
    table.not_yet("http", "effects");
    table.finish();
    Some(On { kind: kind?, sql, emit, line: table.line })
}

/// `sql` is one text with statements in it, or a list of texts and of `{ sql = …, expect = … }`.
fn read_sql(table: &Table<'_>) -> Vec<Statement> {
    let expect = table.field("expect").and_then(|field| field.count());
    let Some(field) = table.field("sql") else {
        if expect.is_some() {
            table.mistake("`expect` in [[consumer.on]] needs `sql`");
        }
        return Vec::new();
    };
    if let DeValue::Array(_) = field.value {
        if expect.is_some() {
            table.mistake(
                "`expect` in [[consumer.on]]: with a list, write { sql = \"…\", expect = … } for each statement",
            );
        }
        return field.elements().iter().flat_map(read_element).collect();
    }
    let mut statements = read_statements(&field);
    match (expect, statements.as_mut_slice()) {
        (None, _) | (_, []) => {}
        (expect, [only]) => only.expect = expect,
        _ => table.mistake(
            "`expect` in [[consumer.on]]: there are several statements; write a list with one `expect` for each",
        ),
    }
    statements
}

fn read_element(field: &Field<'_>) -> Vec<Statement> {
    let DeValue::Table(_) = field.value else { return read_statements(field) };
    let Some(table) = field.table("a statement") else { return Vec::new() };
    let expect = table.field("expect").and_then(|field| field.count());
    let mut statements = table.required("sql").map(|field| read_statements(&field)).unwrap_or_default();
    table.finish();
    for statement in &mut statements {
        statement.expect = expect;
    }
    statements
}

fn read_statements(field: &Field<'_>) -> Vec<Statement> {
    // Not expanded: what the environment holds does not become SQL.
    let Some(text) = field.verbatim() else { return Vec::new() };
    let read = sql::parse(&text).and_then(|statements| {
        statements.iter().flat_map(|statement| &statement.parameters).try_for_each(payload::check)?;
        Ok(statements)
    });
    read.unwrap_or_else(|reason| {
        field.mistake(reason);
        Vec::new()
    })
}

/// What must have a name.
fn named(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("it is empty".to_owned()) } else { Ok(text.to_owned()) }
}

fn read_emit(field: &Field<'_>) -> Option<Emit> {
    let table = field.table("`emit`")?;
    let kind = table.required("type").and_then(|kind| kind.read(named));
    let topic = table.required("topic").and_then(|topic| topic.read(|text| Text::parse(&named(text)?)));
    let key = table.field("key").and_then(|key| key.read(Text::parse));
    let payload = table.field("payload").map_or(Some(Shape::Same), |payload| read_shape(&payload));
    table.finish();
    Some(Emit { kind: kind?, topic: topic?, key, payload: payload? })
}

fn read_shape(field: &Field<'_>) -> Option<Shape> {
    Some(match field.value {
        DeValue::String(_) => Shape::Text(field.read(Text::parse)?),
        DeValue::Boolean(value) => Shape::Literal((*value).into()),
        DeValue::Array(_) => Shape::List(field.elements().iter().map(read_shape).collect::<Option<_>>()?),
        DeValue::Table(_) => {
            let table = field.table("`payload`")?;
            let fields = table.all().map(|(name, value)| Some((name.to_owned(), read_shape(&value)?)));
            Shape::Object(fields.collect::<Option<_>>()?)
        }
        DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => Shape::Literal(number.into()),
            Err(_) => {
                field.mistake("the number is too large");
                return None;
            }
        },
        DeValue::Float(number) => match number.as_str().parse::<f64>() {
            Ok(number) if number.is_finite() => Shape::Literal(number.into()),
            _ => {
                field.mistake("JSON has no such number");
                return None;
            }
        },
        DeValue::Datetime(date) => Shape::Literal(date.to_string().into()),
    })
}
