//! Every verb is in the completions of every shell and has a man page.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

use std::process::Command;

fn says(words: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_oncebox")).args(words).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Every verb with what stands before it, as the help lists them.
fn verbs() -> Vec<Vec<String>> {
    let listed = |words: &[String]| {
        let words: Vec<&str> = words.iter().map(String::as_str).chain(["--help"]).collect();
        let help = says(&words);
        let list = help.split("Commands:\n").nth(1).unwrap_or_default().split("\n\n").next().unwrap_or_default();
        let names = list.lines().filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next());
        names.filter(|name| *name != "help").map(str::to_owned).collect::<Vec<_>>()
    };
    let mut verbs = Vec::new();
    for noun in listed(&[]) {
        let below = listed(std::slice::from_ref(&noun));
        verbs.extend(below.into_iter().map(|verb| vec![noun.clone(), verb]));
        verbs.push(vec![noun]);
    }
    verbs
}

#[test]
fn every_verb_of_the_contract_is_there() {
    let verbs = verbs();
    for known in [
        "schema up",
        "schema check",
        "schema print",
        "parked groups",
        "parked list",
        "parked show",
        "parked plan",
        "parked replay",
        "parked edit",
        "parked discard",
        "parked note",
        "parked export",
        "replay list",
        "replay show",
        "replay pause",
        "replay resume",
        "replay cancel",
        "outbox list",
        "outbox show",
        "outbox skip",
        "message show",
        "init",
        "run",
        "relay",
        "send",
        "demo",
        "bench",
        "explain",
        "completions",
        "man",
    ] {
        assert!(verbs.iter().any(|verb| verb.join(" ") == known), "there is no `oncebox {known}`");
    }
}

#[test]
fn every_verb_is_completed() {
    let verbs = verbs();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = says(&["completions", shell]);
        for verb in verbs.iter().flatten() {
            assert!(script.contains(verb.as_str()), "{shell}: {verb}");
        }
    }
}

#[test]
fn every_verb_has_a_man_page() {
    let folder = tempfile::tempdir().unwrap();
    says(&["man", folder.path().to_str().unwrap()]);
    for verb in verbs() {
        let page = folder.path().join(format!("oncebox-{}.1", verb.join("-")));
        let text = std::fs::read_to_string(&page).unwrap_or_else(|_| panic!("{verb:?} has no man page"));
        assert!(text.contains(".TH") && text.contains("NAME"), "{verb:?}: {text}");
    }
    assert!(folder.path().join("oncebox.1").exists());
}
