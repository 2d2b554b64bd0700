//! What each consumer can promise, asked of the consumer itself.

use oncebox::{Code, Guarantee};

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
                let (mut guarantee, mut because) = consumer.promises();
                match consumer.check_identity().await {
                    Err(error) if error.code() == Code::IdentityChanged => {
                        let evidence = error.to_string();
                        let (evidence, fix) = evidence.split_once("; ").unwrap_or((&evidence, ""));
                        let finding = Finding::new("identity.changed", Severity::Error, &about, evidence, fix);
                        report.findings.push(finding);
                        let why = "its key or its order is not the one that its records were written with";
                        (guarantee, because) = (Guarantee::AtLeastOnce, Some(why.to_owned()));
                    }
                    // The store's troubles are told where it is looked at.
                    _ => {}
                }
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
