//! Keys are bytes: no collation, no case folding, no trimming, no truncation.

use std::collections::BTreeSet;

use oncebox_core::{Claim, ClaimRequest, Clock, ConsumerId, Inbox, Store};

use crate::store::steps::{begin, commit, consumer, fingerprint, key};
use crate::store::{Setup, StoreFixture};

/// Ids that some database, collation or driver takes for one another: by case, accents, Unicode form, white space,
/// length or a character that ends a text.
fn look_alikes() -> Vec<String> {
    let mut ids: Vec<String> = [
        // case, and letters whose other case is another letter or two
        "msg-a",
        "Msg-A",
        "MSG-A",
        "msg-A",
        "strasse",
        "stra\u{df}e",
        "STRASSE",
        "\u{130}",
        "i\u{307}",
        "I",
        "\u{131}",
        "i",
        "\u{3c3}",
        "\u{3c2}",
        "\u{3a3}",
        // white space around and in between
        "msg-a ",
        "msg-a  ",
        " msg-a",
        "msg-a\t",
        "msg-a\n",
        "msg-a\r\n",
        "msg-a\u{a0}",
        "msg -a",
        " ",
        "  ",
        "\t",
        // what is not seen
        "msg-a\0",
        "msg-a\0b",
        "msg-a\0c",
        "\0",
        "\0\0",
        "msg-a\u{200b}",
        "msg-a\u{feff}",
        "\u{feff}msg-a",
        "msg\u{ad}-a",
        "msg-a\u{202e}",
        "msg-a\u{7f}",
        "msg-a\u{1}",
        "msg-a\u{1a}",
        // composed and decomposed, full width, ligatures, other alphabets
        "caf\u{e9}",
        "cafe\u{301}",
        "cafe",
        "\u{212b}",
        "\u{c5}",
        "A\u{30a}",
        "\u{fb00}",
        "ff",
        "\u{ff41}",
        "a",
        "\u{430}",
        "\u{1d4d0}",
        "\u{2460}",
        "1",
        "\u{661}",
        "\u{b9}",
        // outside the basic plane
        "\u{1f600}",
        "\u{1f601}",
        "\u{1f468}\u{200d}\u{1f469}",
        "\u{10ffff}",
        // statements, patterns and escapes
        "'",
        "''",
        "\\'",
        "\"",
        "`",
        "\\",
        "\\\\",
        "\\0",
        "\\x00",
        "%",
        "_",
        "%%",
        "?",
        "$1",
        ":id",
        "--",
        "/*",
        ";",
        "'); drop table inbox; --",
        "null",
        "NULL",
        "true",
        "{}",
        "[]",
        // numbers that are equal as numbers
        "01",
        "1.0",
        "1e0",
        "+1",
        "-0",
        "0",
        "0x1",
        // one UUID, written in many ways
        "018f9c2e-7d5a-7b3c-9d1e-2f3a4b5c6d7e",
        "018F9C2E-7D5A-7B3C-9D1E-2F3A4B5C6D7E",
        "018f9c2e7d5a7b3c9d1e2f3a4b5c6d7e",
        "{018f9c2e-7d5a-7b3c-9d1e-2f3a4b5c6d7e}",
        "urn:uuid:018f9c2e-7d5a-7b3c-9d1e-2f3a4b5c6d7e",
        "018f9c2e-7d5a-7b3c-9d1e-2f3a4b5c6d7f",
    ]
    .map(str::to_owned)
    .to_vec();
    // Around the lengths at which something is cut: our own 64 bytes, a column's 255, an index's 767 and 3072.
    for length in [15, 16, 17, 32, 33, 63, 64, 65, 255, 256, 767, 768, 3072, 4096] {
        ids.push("x".repeat(length));
        ids.push(format!("{}y", "x".repeat(length - 1)));
        ids.push(format!("{} ", "x".repeat(length - 1)));
    }
    ids
}

/// Claims each id with a fingerprint of its own: whichever two the store takes for one, the second is not fresh.
async fn assert_distinct<S: Store>(store: &S, consumer: ConsumerId, ids: &[String]) {
    /// As large as batches of the engine get.
    const BATCH: usize = 500;
    let numbers = i64::try_from(ids.len()).expect("there are few ids");
    let requests: Vec<ClaimRequest> = (ids.iter().zip(1..=numbers))
        .map(|(id, n)| ClaimRequest { consumer, key: key(id), fingerprint: fingerprint(n), id_hash: None })
        .collect();
    for second_time in [false, true] {
        for (ids, requests) in ids.chunks(BATCH).zip(requests.chunks(BATCH)) {
            let mut tx = begin(store).await;
            let claims = tx.claim(requests).await.expect("a large batch of keys can be claimed");
            assert_eq!(claims.len(), requests.len());
            for (id, claim) in ids.iter().zip(&claims) {
                let right = match claim {
                    Claim::Fresh => !second_time,
                    Claim::Duplicate(_) => second_time,
                    _ => false,
                };
                assert!(right, "the key of {id:?} was taken for another: {claim:?}");
            }
            commit(tx).await;
        }
    }
}

/// Ids that look alike to a database are different keys.
pub async fn hostile_keys_stay_distinct<F: StoreFixture>(setup: Setup<F>) {
    let ids = look_alikes();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "the case itself names no id twice");
    let consumer = consumer(&setup.store, "billing").await;
    assert_distinct(&setup.store, consumer, &ids).await;
}

/// Ten thousand different ids are ten thousand keys, whatever characters they are made of.
pub async fn ten_thousand_random_keys_stay_distinct<F: StoreFixture>(setup: Setup<F>) {
    let mut ids = BTreeSet::new();
    while ids.len() < 10_000 {
        ids.insert(random_id(&*setup.clock));
    }
    let consumer = consumer(&setup.store, "billing").await;
    let ids: Vec<String> = ids.into_iter().collect();
    assert_distinct(&setup.store, consumer, &ids).await;
}

/// One to a hundred characters from a few that are easily confused, and now and then any at all.
fn random_id(clock: &dyn Clock) -> String {
    const ALPHABET: [char; 16] =
        ['a', 'A', 'b', 'B', '0', '1', ' ', '\0', '\'', '"', '\\', '%', '\u{e9}', '\u{301}', 'e', '\u{1f600}'];
    let below = |n: u64| clock.random() % n;
    // Mostly short, so that many differ in a single character.
    let length = if below(10) == 0 { 1 + below(100) } else { 1 + below(8) };
    (0..length)
        .map(|_| {
            let any = u32::try_from(below(0x11_0000)).ok().and_then(char::from_u32);
            let common = usize::try_from(below(16)).map_or('a', |n| ALPHABET[n]);
            if below(4) == 0 { any.unwrap_or(common) } else { common }
        })
        .collect()
}
