//! What the documents say about the code is true: every promise is listed, every test that proves one exists, and the
//! README shows code that is built and run.

#![allow(clippy::unwrap_used, reason = "a test that panics has said what it found")]

use std::collections::BTreeMap;
use std::path::Path;

/// How many promises each subject has.
const PROMISES: [(char, usize); 14] = [
    ('A', 7),
    ('B', 10),
    ('C', 3),
    ('D', 5),
    ('E', 8),
    ('F', 5),
    ('G', 5),
    ('H', 3),
    ('I', 3),
    ('J', 2),
    ('K', 3),
    ('L', 1),
    ('M', 3),
    ('N', 2),
];

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// What each promise is proven by.
fn rows() -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(root().join("docs/promises.md")).unwrap();
    let mut rows = BTreeMap::new();
    for line in text.lines() {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        if let [promise, _, proof] = cells[..]
            && promise.ends_with(|c: char| c.is_ascii_digit())
        {
            assert!(rows.insert(promise.to_owned(), proof.to_owned()).is_none(), "{promise} is listed twice");
        }
    }
    rows
}

#[test]
fn every_promise_is_listed() {
    let rows = rows();
    let expected = PROMISES.iter().flat_map(|(subject, count)| (1..=*count).map(move |n| format!("{subject}{n}")));
    let expected: Vec<String> = expected.collect();
    let missing: Vec<_> = expected.iter().filter(|promise| !rows.contains_key(*promise)).collect();
    assert!(missing.is_empty(), "not listed: {missing:?}");
    assert_eq!(rows.len(), expected.len(), "listed beside them: {:?}", rows.keys());
}

#[test]
fn every_named_test_exists() {
    for (promise, proof) in rows() {
        let named: Vec<&str> = proof.split('`').skip(1).step_by(2).filter(|name| name.contains("::")).collect();
        assert!(!named.is_empty() || proof == "not yet", "{promise} names no test and does not say `not yet`");
        for name in named {
            let (file, test) = name.split_once("::").unwrap();
            let text =
                std::fs::read_to_string(root().join(file)).unwrap_or_else(|_| panic!("{promise}: no file {file}"));
            assert!(text.contains(&format!("fn {test}")), "{promise}: {file} has no {test}");
        }
    }
}

#[test]
fn every_consumer_case_is_in_the_list() {
    let folder = root().join("crates/oncebox/tests/consumer");
    let list = std::fs::read_to_string(folder.join("main.rs")).unwrap();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let module = path.file_stem().unwrap().to_str().unwrap().to_owned();
        for line in std::fs::read_to_string(&path).unwrap().lines() {
            let case = line.strip_prefix("pub(crate) async fn ").and_then(|rest| rest.split(['<', '(']).next());
            if let Some(case) = case.filter(|_| !["rig", "main", "fixtures"].contains(&module.as_str())) {
                assert!(list.contains(&format!("{module}::{case},")), "{module}::{case} is never run");
            }
        }
    }
}

#[test]
fn the_code_in_the_readme_comes_from_the_examples() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let mut sources = String::new();
    for example in std::fs::read_dir(root().join("examples")).unwrap() {
        sources += &std::fs::read_to_string(example.unwrap().path().join("src/main.rs")).unwrap();
    }
    let blocks: Vec<&str> = readme.split("```rust\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(!blocks.is_empty());
    for block in blocks {
        assert!(sources.contains(block), "no example has\n{block}");
    }
}
