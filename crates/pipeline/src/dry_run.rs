//! Dry runs: today's statements over what was set aside, in transactions that are rolled back.

use oncebox::dry_run::DryRun;
use oncebox::postgres::{Migrate, Postgres};
use oncebox::sqlite::Sqlite;

use crate::backend::Backend;
use crate::file::{ConsumerSpec, Mistakes, Pipeline, StoreAt};
use crate::run::{self, RunFileError};

/// Who runs the statements of a consumer of the file over parked messages and keeps nothing of it: no row, no event, no
/// counter. The statements of `setup` do not run, and neither does the consumer's source: its broker may be away.
pub async fn dry_runner(file: &str, pipeline: &Pipeline, spec: &ConsumerSpec) -> Result<Box<dyn DryRun>, RunFileError> {
    let store_error = |error| RunFileError::Store { file: file.to_owned(), error };
    match &pipeline.store.at {
        StoreAt::Sqlite(path) => {
            let store = Sqlite::builder(path).migrate(Migrate::Check).open().await.map_err(store_error)?;
            dry_runner_on(file, pipeline, spec, store).await
        }
        StoreAt::Postgres(url) => {
            let builder = Postgres::builder(url).migrate(Migrate::Check);
            let builder = pipeline.store.schema.iter().fold(builder, |builder, schema| builder.schema(schema));
            dry_runner_on(file, pipeline, spec, builder.connect().await.map_err(store_error)?).await
        }
    }
}

async fn dry_runner_on<S: Backend>(
    file: &str,
    pipeline: &Pipeline,
    spec: &ConsumerSpec,
    store: S,
) -> Result<Box<dyn DryRun>, RunFileError> {
    let mut found = Vec::new();
    let consumer = run::consumer(spec, &store, pipeline, &mut found).await;
    let consumer = consumer.map_err(|error| RunFileError::Store { file: file.to_owned(), error })?;
    match consumer.filter(|_| found.is_empty()) {
        None => Err(Mistakes { file: file.to_owned(), found }.into()),
        Some(consumer) => match consumer.dry_runner().await {
            Ok(runner) => Ok(Box::new(runner)),
            Err(error) => Err(RunFileError::Part {
                part: format!("consumer {}", spec.name),
                reason: error.to_string(),
                code: error.code(),
            }),
        },
    }
}
