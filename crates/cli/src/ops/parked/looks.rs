//! Looking at what is parked.

use oncebox::quarantine::QuarantineStore;
use oncebox_admin::{Admin, ParkedView};
use serde_json::{Map, Value, json};

use super::Which;
use crate::ops::screen::tame;
use crate::ops::table::{SENTENCE, Table};
use crate::ops::{At, clock};

pub(super) async fn groups<S: QuarantineStore>(admin: &Admin<S>, at: &At, which: &Which) -> anyhow::Result<()> {
    let groups = admin.groups(which.matching(admin).await?).await?;
    at.answer(&groups, || {
        if groups.is_empty() {
            return format!("nothing of {} is parked", which.consumer);
        }
        let mut table = Table::new(&["MESSAGES", "DEAD", "LAST", "CAUSE"]).folding(&["CAUSE"]);
        for group in &groups {
            let (messages, dead) = (group.messages.to_string(), group.dead.to_string());
            table.row(vec![messages, dead, clock(group.last_at), group.cause.clone()]);
        }
        table.text()
    })
}

pub(super) async fn list<S: QuarantineStore>(
    admin: &Admin<S>,
    at: &At,
    which: &Which,
    after: i64,
    limit: usize,
) -> anyhow::Result<()> {
    // One more, to know whether there are more.
    let listed = admin.list(which.matching(admin).await?, after, limit.saturating_add(1)).await?;
    let is_more = listed.len() > limit;
    let listed: Vec<ParkedView> = listed.into_iter().take(limit).map(ParkedView::without_content).collect();
    at.answer(&listed, || {
        if listed.is_empty() {
            return format!("nothing of {} is parked that matches", which.consumer);
        }
        let heads = ["ROW", "STATE", "TYPE", "ID", "TRIES", "SINCE", "REASON"];
        let mut table = Table::new(&heads).folding(&["REASON", "SINCE", "TRIES"]);
        for one in &listed {
            let id = one.id.clone().unwrap_or_default();
            let (row, tries, since) = (one.row.to_string(), one.attempts.to_string(), clock(one.first_at));
            table.row(vec![row, one.state.to_owned(), one.kind.clone(), id, tries, since, one.reason.clone()]);
        }
        let mut text = table.text();
        if let Some(last) = listed.last().filter(|_| is_more) {
            text += &format!("more match; see them with --after {}, or count them with `parked groups`\n", last.row);
        }
        text
    })
}

pub(super) async fn show<S: QuarantineStore>(admin: &Admin<S>, at: &At, row: i64, payload: bool) -> anyhow::Result<()> {
    let one = admin.show(row).await?;
    let one = if payload { one } else { one.without_content() };
    at.answer(&one, || shown(&one))
}

/// Each thing that is known in a line of its own.
fn shown(one: &ParkedView) -> String {
    let maybe = |text: &Option<String>| text.clone();
    let lines = [
        ("row", Some(one.row.to_string())),
        ("consumer", Some(one.consumer.clone())),
        ("id", maybe(&one.id)),
        ("source", maybe(&one.source)),
        ("type", Some(one.kind.clone())),
        ("key", Some(one.key.clone())),
        ("order key", maybe(&one.order_key)),
        ("version", one.version.map(|version| version.to_string())),
        ("made at", Some(clock(one.made_at))),
        ("state", Some(one.state.to_owned())),
        ("due at", one.due_at.map(clock)),
        ("held up", one.is_held_up.then(|| "an earlier message of its order key is dead".to_owned())),
        ("class", one.class.map(str::to_owned)),
        ("cause", Some(one.cause.clone())),
        ("reason", Some(one.reason.clone())),
        ("attempts", Some(one.attempts.to_string())),
        ("parked at", Some(clock(one.first_at))),
        ("failed at", Some(clock(one.last_at))),
        ("note", maybe(&one.note)),
        ("replay", one.replay.map(|replay| replay.to_string())),
        ("edited by", one.edited_by.map(|entry| format!("entry {entry} of the audit log"))),
        ("payload", Some(format!("{} bytes", one.payload_bytes))),
    ];
    let mut text = String::new();
    for (name, value) in lines.into_iter().filter_map(|(name, value)| Some((name, value?))) {
        text += &format!("{name:<10}  {}\n", tame(&value));
    }
    for (name, value) in one.headers.iter().flatten() {
        text += &format!("{:<10}  {}: {}\n", "header", tame(name), tame(value));
    }
    let body = one.payload.as_ref().map(|raw| raw.get()).or(one.payload_base64.as_deref());
    text + &body.map(|body| format!("\n{}\n", tame(body))).unwrap_or_default()
}

pub(super) async fn plan<S: QuarantineStore>(
    admin: &Admin<S>,
    at: &At,
    which: &Which,
    force: bool,
    limit: usize,
) -> anyhow::Result<()> {
    let mut messages = Vec::new();
    let meant = which.meant(admin).await?;
    let plan = admin
        .plan_each(&meant, force, |planned| {
            if messages.len() < limit {
                messages.push(planned);
            }
        })
        .await?;
    let counts: Map<String, Value> =
        plan.forecasts.iter().map(|(forecast, count)| (forecast.name().to_owned(), json!(count))).collect();
    at.answer(&json!({ "will_run": plan.will_run(), "forecasts": counts, "messages": messages }), || {
        if messages.is_empty() {
            return format!("nothing of {} is parked that matches", which.consumer);
        }
        let mut table = Table::new(&["MESSAGES", "FORECAST"]);
        for (forecast, count) in &plan.forecasts {
            table.row(vec![count.to_string(), forecast.name().replace('_', " ")]);
        }
        let mut each = Table::new(&["ROW", "TYPE", "FORECAST", SENTENCE]).folding(&[SENTENCE]);
        for one in &messages {
            let forecast = one.forecast.name().replace('_', " ");
            each.row(vec![one.row.to_string(), one.kind.clone(), forecast, one.sentence.clone()]);
        }
        table.text() + "\n" + &each.text()
    })
}

pub(super) async fn export<S: QuarantineStore>(admin: &Admin<S>, which: &Which) -> anyhow::Result<()> {
    let mut out = std::io::BufWriter::new(std::io::stdout());
    match admin.export(which.matching(admin).await?, &mut out).await {
        // Whoever reads it has had enough.
        Err(oncebox_admin::Error::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        done => Ok(done.map(drop)?),
    }
}
