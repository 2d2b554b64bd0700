//! Records of producers that are not ours, and brokers that do not let us in.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

mod common;

use std::time::Duration;

use common::{Place, foreign, receive_all, texts};
use oncebox_core::memory::MemoryStore;
use oncebox_core::{Sink, SinkErrorKind, Source, SourceErrorKind};
use oncebox_kafka::KafkaSink;

/// A topic is often compressed by whoever writes it, with whatever its client knows.
#[tokio::test]
async fn a_topic_is_read_whatever_its_codec() {
    const NAME: &str = "a_topic_is_read_whatever_its_codec";
    let Some(place) = Place::or_skip(NAME, 1).await else { return };
    let codecs = ["gzip", "snappy", "lz4", "zstd"];
    for codec in codecs {
        let (one, two) = (format!("{codec}-1"), format!("{codec}-2"));
        if !foreign(NAME, "produce.py", &[&place.servers, &place.topic, codec, &one, &two]).await {
            return;
        }
    }
    let source = place.open().await;
    let got = receive_all(&source, 2 * codecs.len()).await;
    let got: Vec<String> = texts(&got).iter().map(|text| text.trim_end().to_owned()).collect();
    let sent: Vec<String> = codecs.iter().flat_map(|codec| [format!("{codec}-1"), format!("{codec}-2")]).collect();
    assert_eq!(got, sent);
}

/// A broker that lets nobody in by a password says so to the client's log alone, and then just ends the connection: what a
/// source and a sink are told must be the reason, not that nobody answered.
#[tokio::test]
async fn who_is_not_let_in_is_told_why() {
    let Some(place) = Place::or_skip("who_is_not_let_in_is_told_why", 1).await else { return };
    let sasl = [
        ("security.protocol", "sasl_plaintext"),
        ("sasl.mechanism", "PLAIN"),
        ("sasl.username", "ada"),
        ("sasl.password", "CANARY"),
    ];
    let mut source = place.source().answer(Duration::from_secs(3));
    let mut sink = KafkaSink::new(&place.servers).answer(Duration::from_secs(3));
    for (name, value) in sasl {
        source = source.setting(name, value);
        sink = sink.setting(name, value);
    }
    let refused = Source::<MemoryStore>::open(&source, &MemoryStore::new()).await.unwrap_err();
    assert_eq!(refused.kind(), SourceErrorKind::Configuration, "{refused}");
    let unsent = sink.open().await.unwrap_err();
    assert_eq!(unsent.kind(), SinkErrorKind::Configuration, "{unsent}");
    for said in [refused.to_string(), unsent.to_string()] {
        assert!(said.contains("uthentication") && !said.contains("CANARY"), "{said}");
    }
}
