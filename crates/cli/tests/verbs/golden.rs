//! What verbs answer, with fixed ids, times and processes, and the files that it is compared with.

use std::collections::HashMap;
use std::path::PathBuf;

use regex_lite::{Captures, Regex};
use serde_json::Value;

/// Whether the files are to be written anew.
pub(crate) fn written_anew() -> bool {
    std::env::var_os("ONCEBOX_WRITE_GOLDEN").is_some()
}

fn folder() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "golden"].iter().collect()
}

/// Compares answers with files, and counts ids as they appear.
pub(crate) struct Golden {
    writes: bool,
    ids: HashMap<String, usize>,
}

impl Golden {
    pub(crate) fn new(writes: bool) -> Self {
        Self { writes, ids: HashMap::new() }
    }

    /// Compares the text of a verb.
    pub(crate) fn text(&mut self, name: &str, answer: &str) {
        let mut answer = self.fixed(answer);
        if name == "status" {
            answer = of_one_moment(&answer);
        }
        self.compare(&format!("{name}.txt"), &answer);
    }

    /// Compares the JSON of a verb.
    pub(crate) fn json(&mut self, name: &str, answer: &str) {
        assert_eq!(answer.trim_end().lines().count(), 1, "{name}: one line: {answer}");
        let mut answer: Value =
            serde_json::from_str(answer).unwrap_or_else(|error| panic!("{name}: {error}: {answer}"));
        if name == "status" {
            same_for_all(&mut answer);
        }
        let answer = self.fixed(&(serde_json::to_string_pretty(&answer).unwrap() + "\n"));
        self.compare(&format!("{name}.json"), &answer);
    }

    fn compare(&self, file: &str, answer: &str) {
        assert!(!answer.contains("CANARY"), "{file} shows a payload: {answer}");
        let path = folder().join(file);
        if self.writes {
            std::fs::write(path, answer).unwrap();
            return;
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(answer, kept, "{file} (ONCEBOX_WRITE_GOLDEN=1 writes it anew)");
    }

    /// With ids that count up from one, and one time for all.
    fn fixed(&mut self, answer: &str) -> String {
        let id = Regex::new("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}").unwrap();
        let next = |found: &Captures<'_>| {
            let known = self.ids.len() + 1;
            let number = *self.ids.entry(found[0].to_owned()).or_insert(known);
            format!("018f9c2e-0000-7000-8000-{number:012}")
        };
        let answer = id.replace_all(answer, next);
        let time = Regex::new(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z").unwrap();
        let answer = time.replace_all(&answer, "2026-01-02T03:04:05Z");
        // From the journal: which process, and how long it took.
        let process = Regex::new(r#"( in |"process": ")[^\s"]+/\d+"#).unwrap();
        let answer = process.replace_all(&answer, "${1}host/17");
        let took = Regex::new(r#"(handler |"handler_ms": )\d+"#).unwrap();
        let answer = took.replace_all(&answer, "${1}3");
        // It grows with each migration. (Other verbs have an `applied`, too.)
        if answer.contains("\"applied\"") && !answer.contains("\"known\"") {
            return answer.into_owned();
        }
        let version = Regex::new(r#"(at version |"(?:applied|known)": )\d+"#).unwrap();
        version.replace_all(&answer, "${1}8").into_owned()
    }
}

/// Times that pass, and who ran it, are not for a test to say.
const PASSING: [&str; 3] = ["up_seconds", "seen_seconds_ago", "lag_seconds"];

/// Counters that depend on how fast the machine is.
const BY_PACE: [&str; 6] = ["commits", "contended", "handler_calls", "handler_millis", "journaled", "released"];

/// The same status on every machine: of a process, a name, and of times, one second.
fn same_for_all(status: &mut Value) {
    match status {
        Value::Array(elements) => elements.iter_mut().for_each(same_for_all),
        Value::Object(fields) => {
            for (name, value) in fields {
                if PASSING.contains(&name.as_str()) {
                    *value = 1.into();
                } else if BY_PACE.contains(&name.as_str()) {
                    *value = 0.into();
                } else if name == "process" {
                    *value = "shop-1/412".into();
                } else {
                    same_for_all(value);
                }
            }
        }
        _ => {}
    }
}

/// The same for the text, with columns two spaces apart whatever their width.
fn of_one_moment(text: &str) -> String {
    let process = Regex::new(r"(?m)^\S+/\d+ ").unwrap().replace_all(text, "shop-1/412 ").into_owned();
    let time = Regex::new(r"\b(\d+m)?\d+s\b").unwrap().replace_all(&process, "1s").into_owned();
    let lane = Regex::new(r"longest in lane \d+").unwrap().replace_all(&time, "longest in lane 38").into_owned();
    Regex::new(" {2,}").unwrap().replace_all(&lane, "  ").into_owned()
}

/// Each documented verb with the answer that is kept for it; of a verb with a flag, if the page tells of that.
pub(crate) fn answers(page: &str) -> Vec<(String, String)> {
    let mut answers = Vec::new();
    for file in std::fs::read_dir(folder()).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "json") {
            let name = path.file_stem().unwrap().to_str().unwrap();
            // `message-show.discarded` is another case of `message-show`; `parked-plan.dry-run` has a page of its own.
            let verb = name.replacen('-', " ", 1).replacen('.', " --", 1);
            if !name.contains('.') || page.contains(&format!("\n## `{verb}`")) {
                answers.push((verb, std::fs::read_to_string(&path).unwrap()));
            }
        }
    }
    answers.sort();
    answers
}
