//! Codes and their pages match, in both directions, and each code is really used.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

use std::path::{Path, PathBuf};
use std::process::Command;

use oncebox::Code;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn every_code_has_a_page_and_every_page_a_code() {
    let folder = root().join("docs/errors");
    for code in Code::ALL {
        let page = std::fs::read_to_string(folder.join(format!("{code}.md")));
        let page = page.unwrap_or_else(|_| panic!("{code} has no page"));
        assert_eq!(page.lines().next(), Some(format!("# {code}: {}", code.title()).as_str()));
        for part in ["\n## What it means\n", "\n## What is safe\n", "\n## What to do\n"] {
            assert!(page.contains(part), "{code} lacks {part:?}");
        }
    }
    let index = std::fs::read_to_string(folder.join("README.md")).unwrap();
    for entry in std::fs::read_dir(&folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name == "README.md" {
            continue;
        }
        let code = name.strip_suffix(".md").and_then(Code::from_name);
        let code = code.unwrap_or_else(|| panic!("docs/errors/{name} is the page of no code"));
        assert!(index.contains(&format!("| [{code}]({code}.md) | {} |", code.title())), "{code} in the index");
    }
}

#[test]
fn every_code_is_used_somewhere() {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(root().join("crates")).unwrap() {
        let folder = entry.unwrap().path().join("src");
        if folder.is_dir() {
            sources(&folder, &mut files);
        }
    }
    // Where all of them are listed proves nothing.
    files.retain(|path| !path.ends_with("core/src/code.rs") && !path.ends_with("cli/src/pages.rs"));
    let text: String = files.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
    for code in Code::ALL {
        let used = format!("Code::{code:?}");
        let whole = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric());
        assert!(text.match_indices(&used).any(|(at, _)| whole(&text[at + used.len()..])), "{code}: nobody says {used}");
    }
}

/// Warnings and errors ask something of a person, so each has a code; but for a few that only inform.
#[test]
fn lines_of_the_log_that_ask_something_carry_a_code() {
    let informs = [
        "its keys are global",
        "store forgets everything",
        "a hook took too long",
        "a hook panicked",
        "the Kafka producer broke",
    ];
    let mut files = Vec::new();
    files.push(root().join("crates/cli/src/collector.rs"));
    for name in ["oncebox", "pipeline", "admin", "store-sql", "nats", "rabbitmq", "kafka", "core"] {
        sources(&root().join("crates").join(name).join("src"), &mut files);
    }
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        for call in ["tracing::warn!(", "tracing::error!("] {
            for (at, _) in text.match_indices(call) {
                let said = text[at..].split(");").next().unwrap();
                let is_fine = said.contains("code = ") || informs.iter().any(|inform| said.contains(inform));
                assert!(is_fine, "{}: {said}", path.display());
            }
        }
    }
}

#[test]
fn explain_prints_the_page() {
    let explain = |words: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_oncebox")).arg("explain").args(words).output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    for code in Code::ALL {
        let page = std::fs::read_to_string(root().join(format!("docs/errors/{code}.md"))).unwrap();
        assert_eq!(explain(&[&code.to_string()]), page);
    }
    let listed = explain(&[]);
    assert_eq!(listed.lines().count(), Code::ALL.len());
    assert!(listed.starts_with("OB0101  the command line is wrong\n"), "{listed}");
    let json: serde_json::Value = serde_json::from_str(&explain(&["ob0201", "--json"])).unwrap();
    assert_eq!((json["code"].as_str(), json["title"].as_str()), (Some("OB0201"), Some("the store cannot be reached")));
    assert!(json["page"].as_str().unwrap().starts_with("# OB0201"));
    let json: serde_json::Value = serde_json::from_str(&explain(&["--json"])).unwrap();
    assert_eq!(json.as_array().unwrap().len(), Code::ALL.len());
}
