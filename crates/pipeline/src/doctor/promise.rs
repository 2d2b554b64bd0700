//! What each consumer can promise, asked of the consumer itself.

use super::finding::{Finding, Severity};
use super::{Promised, Report};
use crate::backend::Backend;
use crate::file::Pipeline;
use crate::run;

pub(super) async fn ask<S: Backend>(pipeline: &Pipeline, store: &S, report: &mut Report) {
    for spec in &pipeline.consumers {
        let about = format!("consumer {}", spec.name);
        let mut mistakes = Vec::new();
        match run::consumer(spec, store, pipeline, &mut mistakes).await {
            Ok(Some(consumer)) => {
                let (guarantee, because) = consumer.promises();
                report.findings.extend(because.as_ref().map(|because| {
                    let evidence = format!("it can promise only {guarantee}");
                    Finding::new("promise.weak", Severity::Note, &about, evidence, because)
                }));
                report.promises.push(Promised { consumer: spec.name.clone(), guarantee, because });
            }
            Ok(None) => {}
            Err(error) => {
                let fix = "mend the store first";
                report.findings.push(Finding::new("store.refused", Severity::Error, &about, error.to_string(), fix));
            }
        }
        let fix = "mend it in the file, or in the database";
        let wrong = mistakes.into_iter().map(|one| {
            let evidence = format!("line {}: {}", one.line, one.says);
            Finding::new("file.mistake", Severity::Error, &about, evidence, fix)
        });
        report.findings.extend(wrong);
    }
}
