//! What becomes of a record, whatever it looks like.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use common::{ANSWER, Place, ack, close, producer, random, receive, receive_all, texts};
use oncebox_core::MessageId;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{FutureRecord, Producer};

/// Records of those who speak no CloudEvents: the key orders, the topic is the type, any bytes come through.
#[tokio::test]
async fn a_plain_record_becomes_a_message() {
    let Some(place) = Place::or_skip("a_plain_record_becomes_a_message", 1).await else { return };
    let producer = producer(&place.servers, &[]);
    let headers = OwnedHeaders::new()
        .insert(Header { key: "oncebox-id", value: Some("order-1") })
        .insert(Header { key: "binary", value: Some(&b"\xff\x00\r\n"[..]) })
        .insert(Header::<&str> { key: "null", value: None })
        .insert(Header { key: "", value: Some("nameless") });
    let record =
        FutureRecord::<str, [u8]>::to(&place.topic).key("account-1").payload(b"\xff\x00 no text").headers(headers);
    producer.send(record, ANSWER).await.unwrap();
    let record = FutureRecord::<[u8], [u8]>::to(&place.topic).key(b"\xff\x01");
    producer.send(record.headers(OwnedHeaders::new()), ANSWER).await.unwrap();
    let source = place.open().await;
    let got = receive_all(&source, 2).await;
    let (plain, tombstone) = (&got[0].message, &got[1].message);
    assert_eq!(plain.id, Some(MessageId::new("order-1").unwrap()));
    assert_eq!((plain.kind.as_str(), plain.order_key.as_deref()), (place.topic.as_str(), Some("account-1")));
    assert_eq!(&plain.payload[..], b"\xff\x00 no text");
    assert_eq!((plain.headers.get("null"), plain.headers.get("binary;base64")), (Some(""), Some("/wANCg==")));
    assert_eq!((tombstone.order_key.as_deref(), tombstone.payload.len()), (Some("hex:ff01"), 0));
    assert!(tombstone.payload_is_null() && !plain.payload_is_null());
    assert_eq!(got[1].coordinate.as_ref().unwrap().as_str(), format!("{}/0/1", place.topic));
    assert_eq!(tombstone.id, None);
}

/// The driver panics on a header whose name is no UTF-8. The record comes all the same, and those behind it.
#[tokio::test]
async fn a_header_name_that_is_no_text_does_not_stop_the_topic() {
    let Some(place) = Place::or_skip("a_header_name_that_is_no_text_does_not_stop_the_topic", 1).await else { return };
    produce_by_hand(&place.servers, &place.topic, b"poison", &[(b"\xff\xfe", b"1"), (b"oncebox-id", b"p-1")]);
    place.send(0, ["after".to_owned()]).await;
    let source = place.open().await;
    let got = receive_all(&source, 2).await;
    assert_eq!(texts(&got), ["poison", "after"]);
    assert_eq!(got[0].message.id, Some(MessageId::new("p-1").unwrap()));
    assert_eq!(got[0].message.headers.get("oncebox-unreadable-headers"), Some("1"));
    ack(&source, got).await;
    place.await_committed(0, 2).await;
}

/// What a transaction took back is never handed out, and does not stand in the way of the offsets.
#[tokio::test]
async fn aborted_transactions_are_not_read() {
    let Some(place) = Place::or_skip("aborted_transactions_are_not_read", 1).await else { return };
    let producer = producer(&place.servers, &[("transactional.id", &random("tx"))]);
    producer.init_transactions(ANSWER).unwrap();
    let send = async |text: &str| {
        let record = FutureRecord::<str, str>::to(&place.topic).partition(0).payload(text);
        producer.send(record.headers(OwnedHeaders::new()), ANSWER).await.unwrap();
    };
    let source = place.open().await;
    producer.begin_transaction().unwrap();
    send("taken back").await;
    producer.abort_transaction(ANSWER).unwrap();
    producer.begin_transaction().unwrap();
    send("kept").await;
    // Not yet committed, so not yet read.
    assert!(receive(&source, 10, Duration::from_millis(300)).await.is_empty());
    producer.commit_transaction(ANSWER).unwrap();
    let got = receive_all(&source, 1).await;
    assert_eq!(texts(&got), ["kept"]);
    ack(&source, got).await;
    // Offsets: taken back 0, its marker 1, kept 2.
    place.await_committed(0, 3).await;
    close(&source).await;
}

/// A produce request, made byte by byte: the driver sends no header whose name is no UTF-8.
fn produce_by_hand(servers: &str, topic: &str, value: &[u8], headers: &[(&[u8], &[u8])]) {
    let mut record = vec![0];
    varint(&mut record, 0);
    varint(&mut record, 0);
    varint(&mut record, -1);
    bytes(&mut record, value);
    varint(&mut record, i64::try_from(headers.len()).unwrap());
    for (name, value) in headers {
        bytes(&mut record, name);
        bytes(&mut record, value);
    }
    // Attributes, last offset delta, both timestamps, producer id, epoch, sequence, one record.
    let mut checked = [&[0; 2][..], &[0; 4], &[0; 16], &[0xff; 14], &1_i32.to_be_bytes()].concat();
    bytes(&mut checked, &record);
    let batch = [&(-1_i32).to_be_bytes()[..], &[2], &crc32c(&checked).to_be_bytes(), &checked].concat();
    let length = |bytes: &[u8]| i32::try_from(bytes.len()).unwrap().to_be_bytes();
    let batch = [&[0; 8][..], &length(&batch), &batch].concat();
    let name = [&i16::try_from(topic.len()).unwrap().to_be_bytes()[..], topic.as_bytes()].concat();
    // Produce, version 3, correlation 7, no client id; no transaction, all replicas, ten seconds; one topic, one partition.
    let head =
        [&[0, 0, 0, 3, 0, 0, 0, 7, 0xff, 0xff][..], &[0xff, 0xff, 0xff, 0xff], &10_000_i32.to_be_bytes()].concat();
    let request = [&head[..], &[0, 0, 0, 1], &name, &[0, 0, 0, 1, 0, 0, 0, 0], &length(&batch), &batch].concat();
    let mut stream = TcpStream::connect(servers).unwrap();
    stream.write_all(&[&length(&request)[..], &request].concat()).unwrap();
    // Length, correlation, topics, name, partitions, partition, and then the error.
    let mut answer = vec![0; 4 + 4 + 4 + name.len() + 4 + 4 + 2];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer[answer.len() - 2..], [0, 0], "the broker took it");
}

fn varint(to: &mut Vec<u8>, number: i64) {
    let mut rest = ((number << 1) ^ (number >> 63)).cast_unsigned();
    while rest >= 0x80 {
        to.push(u8::try_from(rest & 0x7f).unwrap() | 0x80);
        rest >>= 7;
    }
    to.push(u8::try_from(rest).unwrap());
}

fn bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    varint(to, i64::try_from(bytes.len()).unwrap());
    to.extend(bytes);
}

fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg()))
    })
}
