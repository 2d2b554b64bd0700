//! What a journal costs.

use super::finding::{Finding, Severity};
use crate::file::{ConsumerSpec, StoreSpec};
use crate::journal;

/// A consumer that keeps a journal of every delivery pays for it.
pub(super) fn cost(spec: &ConsumerSpec, store: &StoreSpec) -> Option<Finding> {
    let fix = "if nobody looks at it, leave out `journal = true`; to keep less, shorten `journal_for`";
    let about = format!("consumer {}", spec.name);
    Some(Finding::new("journal.cost", Severity::Note, about, journal::cost(spec, store)?, fix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::Pipeline;

    fn told(fields: &str) -> Option<Finding> {
        let text = format!(
            "[store]\nurl = \"sqlite://x.db\"\n[[consumer]]\nname = \"c\"\nfrom = \"queue:q\"\n{fields}\n\
             [[consumer.on]]\ntype = \"t\"\nsql = \"select 1\"\n"
        );
        let pipeline = Pipeline::parse("x.toml", &text, &|_: &str| None).unwrap();
        cost(&pipeline.consumers[0], &pipeline.store)
    }

    #[test]
    fn a_journal_has_its_cost_told() {
        assert_eq!(told(""), None);
        assert_eq!(told("journal = false"), None);
        let week = told("journal = true").unwrap();
        assert!(
            week.evidence
                .starts_with("a journal is kept of every delivery, for 7d: each delivery adds a row of about 130")
        );
        assert!(told("journal = true\njournal_for = \"36h\"").unwrap().evidence.contains("for 36h:"));
    }
}
