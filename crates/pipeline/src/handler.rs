//! Handlers that are made of the file: statements in the message's transaction, and messages emitted with it.

use std::sync::Arc;

use oncebox::{Context, Event, Failure, Message, Outcome};

use crate::backend::{Backend, Prepared};
use crate::file::{Emit, On};
use crate::payload::{Fields, ValueError};

/// What is done with messages of one type, ready to run.
#[derive(Debug)]
pub(crate) struct Ready {
    statements: Vec<Prepared>,
    emit: Vec<Emit>,
}

impl Ready {
    pub(crate) fn new(statements: Vec<Prepared>, on: &On) -> Self {
        Self { statements, emit: on.emit.clone() }
    }
}

/// Handles one message.
pub(crate) async fn handle<S: Backend>(
    mut ctx: Context<S>,
    message: Message,
    ready: Arc<Ready>,
) -> oncebox::Result<Outcome> {
    let fields = Fields::read(&message);
    for (place, statement) in ready.statements.iter().enumerate() {
        let values = statement.parameters.iter().map(|parameter| fields.value(&parameter.path));
        let values = values.collect::<Result<Vec<_>, _>>().map_err(unreadable)?;
        let touched = S::execute(ctx.db(), statement, values).await?;
        if let Some(expected) = statement.expect
            && touched != expected
        {
            // What it waits for may come: a row that another message inserts.
            let says = format!("statement {} touched {touched} rows, and {expected} were expected", place + 1);
            return Err(Failure::transient(says).code("unexpected-rows"));
        }
    }
    for emit in &ready.emit {
        ctx.emit(event(emit, &fields).map_err(unreadable)?);
    }
    Ok(Outcome::applied())
}

/// What is emitted with a message. Plans ask this, too: what cannot be made is no surprise of the replay.
pub(crate) fn event(emit: &Emit, fields: &Fields<'_>) -> Result<Event, ValueError> {
    let mut event = Event::new(&emit.kind).topic(emit.topic.fill(fields)?);
    if let Some(key) = &emit.key {
        event = event.key(key.fill(fields)?);
    }
    let payload = emit.payload.json(fields)?;
    Ok(event.payload(payload.get().as_bytes().to_vec()))
}

/// The message will never be another one.
fn unreadable(error: ValueError) -> Failure {
    let code = match error {
        ValueError::NotJson | ValueError::NotText(_) => "not-json",
        ValueError::Missing(_) | ValueError::NoAttribute(_) => "field-missing",
    };
    Failure::permanent(error.to_string()).code(code)
}
