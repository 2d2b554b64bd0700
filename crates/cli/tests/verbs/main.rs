//! Every operator verb in both its forms, text and JSON, against what is kept under `tests/golden`: on SQLite always, on
//! PostgreSQL where there is one. Ids and times are replaced by fixed ones.
//!
//! `ONCEBOX_WRITE_GOLDEN=1` writes the files anew (on SQLite); look at the difference before you keep it.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

mod golden;
mod place;
mod story;

use oncebox_testkit::skipped;

use crate::place::Place;

#[tokio::test(flavor = "multi_thread")]
async fn every_verb_answers_in_both_forms_on_sqlite() {
    story::told(&Place::sqlite(), golden::written_anew()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_verb_answers_in_both_forms_on_postgres() {
    let Ok(server) = std::env::var("ONCEBOX_TEST_POSTGRES_URL") else {
        return skipped("cli::verbs::every_verb_answers_in_both_forms_on_postgres");
    };
    let place = Place::postgres(&server).await;
    story::told(&place, false).await;
    place.dropped(&server).await;
}

/// The examples in `docs/json.md` are what the verbs answer.
#[test]
fn the_documented_json_is_what_the_verbs_answer() {
    if golden::written_anew() {
        return;
    }
    let page = include_str!("../../../../docs/json.md");
    for (verb, answer) in golden::answers(page) {
        let section = page.split("\n## ").find(|section| section.starts_with(&format!("`{verb}`")));
        let section = section.unwrap_or_else(|| panic!("docs/json.md has no section `{verb}`"));
        let example = section.split("```json\n").nth(1).and_then(|rest| rest.split("\n```").next());
        assert_eq!(example, Some(answer.trim_end()), "the example of `{verb}` in docs/json.md");
    }
}
