//! `oncebox send`: messages, as a producer would send them; also twice, as producers do.

use std::collections::VecDeque;
use std::io::{BufRead, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use oncebox::trace::TraceContext;
use oncebox::{Clock as _, Code, KeyStrategy, Message, MessageId, SystemClock, Template};
use oncebox_pipeline::file::{ConsumerSpec, Pipeline, ProcessEnvironment};
use oncebox_pipeline::place::Origin;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::fault::fault;
use crate::logs::Telling;
use crate::ops;

/// What to send where.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The file that names the store and the consumers. Default: oncebox.toml, which is not needed for a broker.
    #[arg(long, short)]
    file: Option<PathBuf>,
    /// Where to: queue:NAME, amqp://…/queue, nats://host/subject, kafka://host/topic. Default: where the first consumer of
    /// the file receives from.
    #[arg(long)]
    to: Option<String>,
    /// The type. Default: the first that the consumer handles.
    #[arg(long = "type")]
    kind: Option<String>,
    /// The payload, as JSON; the letter n in braces is replaced by the number of the message. Default: a number for each
    /// field that the consumer's statements use.
    #[arg(long, conflicts_with = "lines")]
    payload: Option<String>,
    /// The id. Default: a new one for each message.
    #[arg(long, conflicts_with_all = ["lines", "repeat"])]
    id: Option<String>,
    /// The order key. Default: what the consumer's `order_by` says.
    #[arg(long, conflicts_with = "lines")]
    key: Option<String>,
    /// A file with a message in each line: {"type": …, "id": …, "key": …, "payload": …}, all but the payload optional. `-`
    /// for standard input.
    #[arg(long, conflicts_with = "repeat")]
    lines: Option<PathBuf>,
    /// How many messages to make.
    #[arg(long, default_value_t = 1)]
    repeat: u64,
    /// How many of them are sent a second time, a little later: 0.5 for every other one.
    #[arg(long, default_value_t = 0.0, value_parser = ratio)]
    duplicate_ratio: f64,
    /// Answer with JSON.
    #[arg(long)]
    json: bool,
    /// Begin a trace with each message, and say the first one's id. With `[traces]` in the file, the sending is its first
    /// span.
    #[arg(long)]
    trace: bool,
}

pub(crate) fn ratio(text: &str) -> Result<f64, String> {
    let ratio: f64 = text.parse().map_err(|_| "expected a number from 0 to 1".to_owned())?;
    if (0.0..=1.0).contains(&ratio) { Ok(ratio) } else { Err("expected a number from 0 to 1".to_owned()) }
}

#[allow(clippy::print_stdout, clippy::print_stderr, reason = "this is where the command talks")]
pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let named = args.to.as_deref().map(Origin::parse).transpose();
    let named = named.map_err(|reason| fault(Code::Address, format!("cannot read --to: {reason}")))?;
    let pipeline = file(args.file.as_deref(), named.as_ref())?;
    let first = pipeline.as_ref().and_then(|pipeline| pipeline.consumers.first());
    let to = named.or_else(|| first.map(|consumer| consumer.from.clone()));
    let to = to.ok_or_else(|| fault(Code::CommandLine, "the file has no consumer; name a place with --to"))?;
    let consumers = pipeline.iter().flat_map(|pipeline| &pipeline.consumers);
    let consumer = consumers.into_iter().find(|consumer| consumer.from == to);
    let (count, made): (u64, Box<dyn Iterator<Item = Message>>) = match &args.lines {
        Some(lines) => {
            let made = from_lines(lines, args.kind.as_deref(), consumer)?;
            (made.len() as u64, Box::new(made.into_iter()))
        }
        None => (args.repeat, Box::new(generated(&args, consumer)?)),
    };
    let tracing = pipeline.as_ref().filter(|_| args.trace).map(Telling::start_all).transpose()?;
    let mut made = made.map(|message| traced(message, args.trace, &to)).peekable();
    let shows = std::io::stderr().is_terminal() && count > 1000;
    let told = |sent: u64| {
        if shows {
            eprint!("\r{sent} sent");
        }
    };
    let first = made.peek().filter(|_| args.trace).and_then(TraceContext::of);
    let sent = oncebox_pipeline::send(&to, pipeline.as_ref(), twice(made, args.duplicate_ratio), told).await;
    if let Some(tracing) = tracing {
        tracing.end().await;
    }
    let sent = sent?;
    if shows {
        eprintln!();
    }
    match args.json {
        true => {
            let mut answer = json!({ "messages": count, "sent": sent, "to": to.to_string() });
            if let Some(first) = first {
                answer["trace"] = first.trace_id().to_string().into();
            }
            println!("{answer}");
        }
        false => {
            println!("{} to {to}, {} of them twice", ops::count(count, "message"), sent - count);
            if let Some(first) = first {
                println!("trace {}", first.trace_id());
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The file, which a broker can do without.
fn file(named: Option<&Path>, to: Option<&Origin>) -> anyhow::Result<Option<Pipeline>> {
    let path = named.unwrap_or(Path::new("oncebox.toml"));
    let is_broker = to.is_some_and(|to| !matches!(to, Origin::Queue(_)));
    if named.is_none() && is_broker && !path.exists() {
        return Ok(None);
    }
    Ok(Some(Pipeline::open(path, &ProcessEnvironment)?))
}

/// Begins a trace; the sending is its second span, where the file says where spans go.
fn traced(mut message: Message, asked: bool, to: &Origin) -> Message {
    if asked {
        let (_, destination) = to.as_destination();
        TraceContext::begin(&mut message, &destination, (fastrand::u128(1..), fastrand::u64(1..)));
    }
    message
}

fn kind<'a>(asked: Option<&'a str>, consumer: Option<&'a ConsumerSpec>) -> anyhow::Result<&'a str> {
    let handled = consumer.and_then(|consumer| consumer.on.first()).map(|on| on.kind.as_str());
    let unknown = "no consumer of the file receives from there, so its types are unknown; give --type";
    asked.or(handled).ok_or_else(|| fault(Code::CommandLine, unknown))
}

/// Messages that are made when they are sent: there may be millions.
fn generated(args: &Args, consumer: Option<&ConsumerSpec>) -> anyhow::Result<impl Iterator<Item = Message> + use<>> {
    let kind = kind(args.kind.as_deref(), consumer)?.to_owned();
    let template = match &args.payload {
        Some(payload) => payload.clone(),
        None => fields(&kind, consumer)?.to_string().replace("\"{n}\"", "{n}"),
    };
    let numbered = |text: &str, n: u64| text.replace("{n}", &n.to_string());
    serde_json::from_str::<&RawValue>(&numbered(&template, 1))
        .map_err(|_| fault(Code::CommandLine, "the payload is not JSON; quote it for the shell: '{\"a\": 1}'"))?;
    let id = args.id.clone().map(MessageId::new).transpose();
    let id = id.map_err(|error| fault(Code::CommandLine, error.to_string()))?;
    let key = args.key.clone();
    Ok((1..=args.repeat).map(move |n| {
        let mut message = Message::new(&kind).with_payload(numbered(&template, n));
        if let Some(id) = &id {
            message = message.with_id(id.clone());
        }
        match &key {
            Some(key) => message.with_order_key(numbered(key, n)),
            None => message,
        }
    }))
}

/// A payload with `{n}` for each field that the statements of a type use, and what keys are made of.
fn fields(kind: &str, consumer: Option<&ConsumerSpec>) -> anyhow::Result<Value> {
    let on = consumer.and_then(|consumer| consumer.on.iter().find(|on| on.kind == kind));
    let none = || format!("no consumer of the file handles `{kind}` from there; give --payload");
    let on = on.ok_or_else(|| fault(Code::CommandLine, none()))?;
    let number = || json!("{n}");
    let bound = on.sql.iter().flat_map(|statement| &statement.parameters).map(|path| (path.to_string(), number()));
    let key = consumer.and_then(|consumer| match &consumer.key {
        KeyStrategy::Template(template) => Some(template),
        _ => None,
    });
    let order = consumer.and_then(|consumer| consumer.order_by.as_ref());
    let version = consumer.and_then(|consumer| consumer.version.as_ref());
    let keys = [key, order, version].into_iter().flatten().flat_map(Template::fields).map(|(path, is_time)| {
        (path.to_owned(), if is_time { json!(SystemClock.now().to_string()) } else { number() })
    });
    let mut payload = Value::Object(Map::new());
    for (path, value) in bound.chain(keys).filter(|(path, _)| !path.starts_with('@')) {
        let mut place = &mut payload;
        for step in path.split('.') {
            if !place.is_object() {
                *place = json!({});
            }
            place = &mut place[step];
        }
        if !place.is_object() {
            *place = value;
        }
    }
    Ok(payload)
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    #[serde(rename = "type")]
    kind: Option<String>,
    id: Option<String>,
    key: Option<String>,
    payload: Box<RawValue>,
}

fn from_lines(path: &PathBuf, asked: Option<&str>, consumer: Option<&ConsumerSpec>) -> anyhow::Result<Vec<Message>> {
    let reader: Box<dyn BufRead> = if path.as_os_str() == "-" {
        Box::new(std::io::stdin().lock())
    } else {
        let unread = |error| fault(Code::FileUnusable, format!("cannot read {}: {error}", path.display()));
        let file = std::fs::File::open(path).map_err(unread)?;
        Box::new(std::io::BufReader::new(file))
    };
    let mut messages = Vec::new();
    for (number, line) in reader.lines().enumerate() {
        let place = || format!("line {} of {}", number + 1, path.display());
        let line = line.map_err(|error| fault(Code::FileUnusable, format!("cannot read {}: {error}", place())))?;
        if line.trim().is_empty() {
            continue;
        }
        let parsed: Line = serde_json::from_str(&line).map_err(|error| {
            // The parser's own words quote what they found.
            let says = format!("cannot read {}: column {}: it is not {{\"payload\": …}}", place(), error.column());
            fault(Code::FileUnusable, says)
        })?;
        let kind = match &parsed.kind {
            Some(kind) => kind.as_str(),
            None => kind(asked, consumer)?,
        };
        let mut message = Message::new(kind).with_payload(parsed.payload.get().as_bytes().to_vec());
        if let Some(id) = parsed.id {
            let refused = |error| fault(Code::FileUnusable, format!("cannot read {}: {error}", place()));
            message = message.with_id(MessageId::new(id).map_err(refused)?);
        }
        if let Some(key) = parsed.key {
            message = message.with_order_key(key);
        }
        messages.push(message);
    }
    Ok(messages)
}

/// How far behind a copy comes.
const BEHIND: usize = 20;

/// Messages, `ratio` of them again a little later.
fn twice(mut messages: impl Iterator<Item = Message>, ratio: f64) -> impl Iterator<Item = Message> {
    let mut behind: VecDeque<Message> = VecDeque::new();
    let mut owed = 0.0;
    std::iter::from_fn(move || {
        if behind.len() > BEHIND {
            return behind.pop_front();
        }
        let Some(message) = messages.next() else { return behind.pop_front() };
        owed += ratio;
        if owed >= 1.0 {
            owed -= 1.0;
            behind.push_back(message.clone());
        }
        Some(message)
    })
}
