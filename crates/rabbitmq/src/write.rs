//! A message, as the broker takes it.

use bytes::Bytes;
use lapin::BasicProperties;
use lapin::types::ShortString;
use oncebox_core::Message;
use oncebox_core::cloud_events::{STRUCTURED, Spelling, structured};

use crate::field;

/// How an event is laid out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Attributes among the headers, the payload untouched.
    #[default]
    Binary,
    /// All in one JSON document.
    Structured,
}

/// What goes over the wire.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) properties: BasicProperties,
    pub(crate) payload: Bytes,
    /// About how many bytes the properties take, which must fit into one frame.
    pub(crate) properties_bytes: usize,
}

/// Stored before it is confirmed, and kept through a restart.
const PERSISTENT: u8 = 2;

/// All properties together, at their longest, without the header table.
const SHORT_PROPERTIES_BYTES: usize = 8 * 256;

/// The message with its CloudEvents attributes; an error says why AMQP can't carry it. `source` stands in where the message
/// names none.
pub(crate) fn write(message: &Message, source: Option<&str>, mode: Mode) -> Result<Written, String> {
    let mut headers = match mode {
        Mode::Binary => Spelling::AMQP.write(message, source),
        // Its attributes are in the document.
        Mode::Structured => Spelling::AMQP.own_headers(message),
    };
    let mut properties = BasicProperties::default().with_delivery_mode(PERSISTENT);
    if let Ok(seconds) = u64::try_from(message.time.as_second()) {
        properties = properties.with_timestamp(seconds);
    }
    // A longer one is among the attributes all the same.
    if let Some(id) = message.id.as_ref().and_then(|id| ShortString::try_new(id.as_str()).ok()) {
        properties = properties.with_message_id(id);
    }
    if let Ok(kind) = ShortString::try_new(message.kind.as_str()) {
        properties = properties.with_type(kind);
    }
    for (name, with) in [
        ("content-type", BasicProperties::with_content_type as fn(BasicProperties, ShortString) -> BasicProperties),
        ("content-encoding", BasicProperties::with_content_encoding),
        ("correlation-id", BasicProperties::with_correlation_id),
        ("reply-to", BasicProperties::with_reply_to),
        ("app-id", BasicProperties::with_app_id),
    ] {
        if let Some(value) = take_short(&mut headers, name) {
            properties = with(properties, value);
        }
    }
    let payload = match mode {
        Mode::Binary => message.payload.clone(),
        Mode::Structured => {
            headers.retain(|(name, _)| !name.eq_ignore_ascii_case("content-type"));
            properties = properties.with_content_type(STRUCTURED.into());
            structured(message, source).into()
        }
    };
    let table = field::table(headers)?;
    let properties_bytes = field::table_bytes(&table) + SHORT_PROPERTIES_BYTES;
    Ok(Written { properties: properties.with_headers(table), payload, properties_bytes })
}

/// Takes the first header of this name out, if a property can hold it.
fn take_short(headers: &mut Vec<(String, Vec<u8>)>, name: &str) -> Option<ShortString> {
    let place = headers.iter().position(|(n, _)| n.eq_ignore_ascii_case(name))?;
    let value = std::str::from_utf8(&headers[place].1).ok().and_then(|text| ShortString::try_new(text).ok())?;
    headers.remove(place);
    Some(value)
}

#[cfg(test)]
mod tests {
    use lapin::message::Delivery;
    use oncebox_core::{MessageId, Timestamp};

    use super::*;
    use crate::guard::Lost;
    use crate::read;

    fn there_and_back(message: &Message, mode: Mode) -> Message {
        let written = write(message, Some("us"), mode).unwrap();
        let mut delivery = Delivery::mock(1, "".into(), "q".into(), false, written.payload.to_vec());
        delivery.properties = written.properties;
        read::message(&mut delivery, Lost::new(), "q", Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn what_is_written_reads_the_same_in_both_modes() {
        let mut sent = Message::new("invoice.paid").with_order_key("i-1").with_version(7).with_payload(r#"{"a":1}"#);
        sent = sent.with_source("billing");
        for (name, value) in [("content-type", "application/json"), ("reply-to", "r"), ("x", "1"), ("x", "2")] {
            sent.headers.add(name, value).unwrap();
        }
        assert!(there_and_back(&sent, Mode::Binary) == sent);
        let back = there_and_back(&sent, Mode::Structured);
        assert_eq!((&back.id, &back.kind, &back.order_key), (&sent.id, &sent.kind, &sent.order_key));
        assert_eq!((back.version, &back.payload, back.time), (sent.version, &sent.payload, sent.time));
        let headers = |message: &Message| -> Vec<(String, String)> {
            let mut headers: Vec<_> = message.headers.iter().map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
            headers.sort();
            headers
        };
        assert_eq!(headers(&back), headers(&sent));
    }

    #[test]
    fn an_id_too_long_for_a_property_still_arrives() {
        let sent = Message::new("t").with_id(MessageId::new("i".repeat(300)).unwrap());
        assert_eq!(there_and_back(&sent, Mode::Binary).id, sent.id);
    }

    #[test]
    fn properties_are_those_that_others_read() {
        let written = write(&Message::new("t"), Some("us"), Mode::Binary).unwrap().properties;
        assert_eq!(written.delivery_mode(), &Some(2));
        assert_eq!(written.kind().as_ref().map(ShortString::as_str), Some("t"));
        assert!(written.message_id().is_some() && written.timestamp().is_some());
    }
}
