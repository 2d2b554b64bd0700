//! What a journal costs.

use super::finding::{Finding, Severity};
use crate::file::ConsumerSpec;
use crate::journal;

/// A consumer that keeps a journal of every delivery pays for it.
pub(super) fn cost(spec: &ConsumerSpec) -> Option<Finding> {
    let fix = "if nobody looks at it, leave out `journal = true`; to keep less, shorten `journal_for`";
    let about = format!("consumer {}", spec.name);
    Some(Finding::new("journal.cost", Severity::Note, about, journal::cost(spec)?, fix))
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
        cost(&Pipeline::parse("x.toml", &text, &|_: &str| None).unwrap().consumers[0])
    }

    #[test]
    fn a_journal_has_its_cost_told() {
        assert_eq!(told(""), None);
        assert_eq!(told("journal = false"), None);
        let week = told("journal = true").unwrap();
        assert!(week.evidence.starts_with("a journal is kept of every delivery, for 7d: each delivery adds a row"));
        assert!(told("journal = true\njournal_for = \"36h\"").unwrap().evidence.contains("for 36h:"));
    }
}
