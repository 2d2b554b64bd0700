//! On a terminal, tables fit its width and states have colours; with NO_COLOR, or in a pipe, they have none, and in a pipe
//! nothing is cut.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use oncebox::parked::{Cause, Park, Parking, Verdict, Waits};
use oncebox::sqlite::Sqlite;
use oncebox::{
    ClaimRequest, Class, ConsumerName, Ended, Fingerprinter, Inbox, Key, Message, MessageId, Outcome, OutcomeKind,
    Session, Store, Transaction,
};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

const REASON: &str = "the bank does not answer, and has not answered for a long time; ask again tomorrow";

/// A store with a dead message in it.
async fn store(folder: &Path) -> String {
    let path = folder.join("shop.db");
    let store = Sqlite::open(path.to_str().unwrap()).await.unwrap();
    let consumer = store.consumer(&ConsumerName::new("invoices").unwrap()).await.unwrap();
    let message = Message::new("payment.received").with_id(MessageId::new("hostile\x1b[2J").unwrap());
    let (key, fingerprint) = (Key::id("m-1").unwrap(), Fingerprinter::default().fingerprint(&message));
    let mut tx = store.connect().await.unwrap().begin(Duration::from_secs(5)).await.unwrap();
    tx.claim(&[ClaimRequest { consumer, key: key.clone(), fingerprint, id_hash: None }]).await.unwrap();
    tx.record(&[(consumer, key.clone(), Outcome::of(OutcomeKind::Parked))]).await.unwrap();
    let verdict = Verdict {
        waits: Waits::Person,
        class: Some(Class::Permanent),
        cause: Cause::from_stored("permanent/payment.received/no-answer"),
        reason: REASON.to_owned(),
        attempts: 8,
    };
    let message = message.into();
    let park = Park { consumer, message, key, fingerprint, owns_record: true, order_key: None, verdict };
    tx.park(&[park]).await.unwrap();
    assert!(matches!(tx.commit().await, Ended::Committed(_)));
    format!("sqlite://{}", path.display())
}

const LIST: [&str; 3] = ["parked", "list", "invoices"];

/// What the command writes to a terminal of this width.
fn on_terminal(words: &[&str], store: &str, width: u16, environment: &[(&str, &str)]) -> String {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    tcsetwinsize(&terminal, Winsize { ws_row: 24, ws_col: width, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let inner = std::fs::OpenOptions::new().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_oncebox"));
    command.args(words).args(["--store", store]).stdin(Stdio::null()).stdout(inner);
    command.env_remove("NO_COLOR").env("TERM", "xterm").envs(environment.iter().copied());
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut said = Vec::new();
    // The end of a terminal is an error.
    let _ = std::fs::File::from(terminal).read_to_end(&mut said);
    assert!(child.wait().unwrap().success());
    String::from_utf8(said).unwrap().replace("\r\n", "\n")
}

fn without_colours(text: &str) -> String {
    regex_lite::Regex::new("\x1b\\[[0-9]+m").unwrap().replace_all(text, "").into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_fits_the_terminal_and_a_pipe_gets_all_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path()).await;
    for width in [60, 80, 120] {
        let shown = on_terminal(&LIST, &store, width, &[]);
        assert!(shown.contains("\x1b[31mdead\x1b[0m"), "{shown}");
        let plain = without_colours(&shown);
        assert!(plain.lines().all(|line| line.chars().count() <= usize::from(width)), "{width}: {plain}");
        assert!(!plain.contains('\x1b') && !plain.contains('…'), "{plain}");
        let words: Vec<&str> = plain.split_whitespace().collect();
        assert!(words.join(" ").contains(REASON), "it is folded, and not cut: {plain}");
    }
    let wide = on_terminal(&LIST, &store, 250, &[]);
    assert!(wide.contains(REASON) && !wide.contains("\x1b[2J"), "{wide}");
    for environment in [[("NO_COLOR", "1")], [("TERM", "dumb")]] {
        let plain = on_terminal(&LIST, &store, 250, &environment);
        assert!(plain.contains("dead") && !plain.contains('\x1b'), "{plain}");
    }
    let mut piped = Command::new(env!("CARGO_BIN_EXE_oncebox"));
    let piped = piped.args(["parked", "list", "invoices", "--store", &store]).output().unwrap();
    let piped = String::from_utf8(piped.stdout).unwrap();
    assert!(piped.contains(REASON) && !piped.contains('\x1b'), "{piped}");
}

/// What does not fit beside the rest stands under its row, and neither a line nor its colours are cut, in a picture that
/// goes on either.
#[tokio::test(flavor = "multi_thread")]
async fn the_status_fits_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path()).await;
    let said = |words: &[&str], width| without_colours(&on_terminal(words, &store, width, &[]));
    for width in [40, 60, 80, 160] {
        for words in [&["status"][..], &["status", "--watch", "--looks", "2"]] {
            let plain = said(words, width);
            let plain = regex_lite::Regex::new("\x1b\\[[0-9]*[AJK]").unwrap().replace_all(&plain, "");
            assert!(plain.lines().all(|line| line.chars().count() <= usize::from(width)), "{width}: {plain}");
            let flat = plain.split_whitespace().collect::<Vec<_>>().join(" ");
            let heads = if width < 100 { "guarantee: ?" } else { "RUNS IN GUARANTEE" };
            assert!(flat.contains(heads) && flat.contains("BACKLOG") && !flat.contains('…'), "{width}: {plain}");
            assert!(flat.contains("invoices has dead messages; `oncebox parked groups invoices` tells why"), "{plain}");
        }
    }
    let piped = Command::new(env!("CARGO_BIN_EXE_oncebox")).args(["status", "--store", &store]).output().unwrap();
    let piped = String::from_utf8(piped.stdout).unwrap();
    let heads = "CONSUMER  APPLIED  DUPLICATES  CONFLICTS  PARKED  DEAD  BACKLOG  OLDEST  RUNS IN  GUARANTEE\n";
    assert!(piped.starts_with(heads), "{piped}");
}
