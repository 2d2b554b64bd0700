//! Examines everything that a file names: the file itself, the store, the brokers, and how they fit together.
//!
//! | file | what it looks at |
//! | --- | --- |
//! | `text` | secrets that are written out |
//! | `hosts` | connections in plain text to other machines |
//! | `keys` | keys that catch too much |
//! | `journal` | what a journal costs |
//! | `store` | schema, clock, indexes |
//! | `postgres`, `sqlite` | durability, bloat, transactions that stay open |
//! | `brokers`, `nats`, `rabbitmq` | topics, streams, queues, offsets |
//! | `relay`, `topics` | the broker that is published to, and what is emitted to there |
//! | `handlers` | what was counted: handlers against leases, keys that clash |
//! | `promise` | what each consumer can promise |
//!
//! One check is one function from what was seen to a finding, if there is one. Nothing is changed anywhere, but for the
//! statements of `setup`, which run at each start.

mod brokers;
mod finding;
mod handlers;
mod hosts;
mod journal;
mod keys;
#[cfg(feature = "brokers")]
mod nats;
mod postgres;
mod promise;
#[cfg(feature = "brokers")]
mod rabbitmq;
mod relay;
mod sqlite;
mod store;
mod text;
#[cfg(feature = "brokers")]
mod topics;

use oncebox::Guarantee;

use crate::file::{Pipeline, StoreAt};
use crate::retention::{Facts, Kept, judge};
pub use finding::{Finding, Severity};

/// What was found, the worst first.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// All findings.
    pub findings: Vec<Finding>,
    /// What each consumer can promise, and what keeps it from more.
    pub promises: Vec<Promised>,
}

/// What a consumer can promise.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Promised {
    /// Which consumer.
    pub consumer: String,
    /// What it can promise.
    pub guarantee: Guarantee,
    /// The weakest link, and what would mend it.
    pub because: Option<String>,
}

impl Report {
    /// Consumers that promise less than `required`.
    pub fn weaker_than(&self, required: Guarantee) -> impl Iterator<Item = &Promised> {
        self.promises.iter().filter(move |promised| promised.guarantee < required)
    }

    /// Whether something must be mended.
    pub fn has_errors(&self) -> bool {
        self.findings.iter().any(|finding| finding.severity == Severity::Error)
    }
}

/// Examines a file whose text is `text`.
pub async fn examine(pipeline: &Pipeline, text: &str) -> Report {
    let mut report = Report::default();
    let found = &mut report.findings;
    found.extend(text::secrets(text));
    found.extend(hosts::plain_text(pipeline));
    let mut asked = Vec::new();
    for spec in &pipeline.consumers {
        found.extend(keys::too_broad(spec));
        found.extend(journal::cost(spec, &pipeline.store));
        let facts = Facts::ask(spec, pipeline).await;
        found.extend(brokers::look(spec, &facts).await);
        found.extend(retention(&judge(spec, &facts)));
        asked.push(facts);
    }
    found.extend(relay::look(pipeline).await);
    match &pipeline.store.at {
        StoreAt::Sqlite(path) => {
            if let Some(store) = sqlite::examine(path, &mut report.findings).await {
                handlers::look(pipeline, &store, &asked, &mut report.findings).await;
                promise::ask(pipeline, &store, &mut report).await;
            }
        }
        StoreAt::Postgres(url) => {
            if let Some(store) = postgres::examine(url, &pipeline.store, &mut report.findings).await {
                handlers::look(pipeline, &store, &asked, &mut report.findings).await;
                promise::ask(pipeline, &store, &mut report).await;
            }
        }
    }
    report.findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    report
}

/// A retention that is shorter than the longest way back, and ways that nobody can hold it against.
fn retention(kept: &Kept) -> Vec<Finding> {
    let about = format!("consumer {}", kept.consumer);
    let mut found = Vec::new();
    if let Some(complaint) = kept.complaint() {
        let severity = if kept.is_unsafe { Severity::Warning } else { Severity::Error };
        let (evidence, fix) = complaint.split_once("; ").unwrap_or((&complaint, ""));
        found.push(Finding::new("retention.too-short", severity, &about, evidence, fix));
    }
    // Of a broker that is away it was said already why nobody knows.
    for way in kept.open_ways().filter(|_| !kept.is_unanswered) {
        let evidence = format!("{}: a message can come back after {} ({})", way.what, way.lasts, way.says);
        let fix = "say with `broker_retention` how far back anyone will read it";
        found.push(Finding::new("retention.open", Severity::Warning, &about, evidence, fix));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(fields: &str) -> Kept {
        let text = format!(
            "[store]\nurl = \"sqlite://x.db\"\n[[consumer]]\nname = \"c\"\nfrom = \"queue:q\"\n{fields}\n\
             [[consumer.on]]\ntype = \"t\"\nsql = \"select 1\"\n"
        );
        judge(&Pipeline::parse("x.toml", &text, &|_: &str| None).unwrap().consumers[0], &Facts::None)
    }

    #[test]
    fn a_short_retention_is_an_error_unless_it_is_meant() {
        let found = retention(&kept("retention = \"7d\"\nreplay_within = \"7d\""));
        assert_eq!((found.len(), found[0].severity, found[0].check), (1, Severity::Error, "retention.too-short"));
        assert!(found[0].fix.starts_with("keep records for 14d at least"), "{found:?}");
        let meant = retention(&kept("retention = \"7d\"\nreplay_within = \"7d\"\nretention_unsafe = true"));
        assert_eq!(meant[0].severity, Severity::Warning);
        assert_eq!(retention(&kept("retention = \"14d\"\nreplay_within = \"7d\"")), []);
    }
}
