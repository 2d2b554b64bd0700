//! Values of AMQP header tables, as headers and back.

use lapin::types::{AMQPValue, FieldArray, FieldTable, ShortString};
use serde_json::{Map, Value};

/// Tables and arrays nest; whoever nests deeper than this means no good.
const DEPTH_MAX: usize = 8;

/// The values of one header. An array of plain values is a name that repeats.
pub(crate) fn values(value: &AMQPValue) -> Vec<Vec<u8>> {
    match value {
        AMQPValue::FieldArray(array) => {
            let plain: Option<Vec<Vec<u8>>> = array.as_slice().iter().map(plain).collect();
            plain.unwrap_or_else(|| vec![json(value, 0).to_string().into_bytes()])
        }
        value => vec![plain(value).unwrap_or_else(|| json(value, 0).to_string().into_bytes())],
    }
}

/// A number in a header, whatever its width.
pub(crate) fn number(value: &AMQPValue) -> Option<u64> {
    std::str::from_utf8(&plain(value)?).ok()?.parse().ok()
}

fn plain(value: &AMQPValue) -> Option<Vec<u8>> {
    let text = match value {
        AMQPValue::LongString(text) => return Some(text.as_bytes().to_vec()),
        AMQPValue::ByteArray(bytes) => return Some(bytes.as_slice().to_vec()),
        AMQPValue::ShortString(text) => text.to_string(),
        AMQPValue::Boolean(value) => value.to_string(),
        AMQPValue::ShortShortInt(value) => value.to_string(),
        AMQPValue::ShortShortUInt(value) => value.to_string(),
        AMQPValue::ShortInt(value) => value.to_string(),
        AMQPValue::ShortUInt(value) => value.to_string(),
        AMQPValue::LongInt(value) => value.to_string(),
        AMQPValue::LongUInt(value) => value.to_string(),
        AMQPValue::LongLongInt(value) => value.to_string(),
        AMQPValue::Float(value) => value.to_string(),
        AMQPValue::Double(value) => value.to_string(),
        AMQPValue::Timestamp(seconds) => seconds.to_string(),
        AMQPValue::Void => String::new(),
        AMQPValue::DecimalValue(_) | AMQPValue::FieldArray(_) | AMQPValue::FieldTable(_) => return None,
    };
    Some(text.into_bytes())
}

/// What has a structure, such as `x-death`, for people and handlers that ask.
fn json(value: &AMQPValue, depth: usize) -> Value {
    if depth > DEPTH_MAX {
        return Value::Null;
    }
    match value {
        AMQPValue::FieldArray(array) => array.as_slice().iter().map(|value| json(value, depth + 1)).collect(),
        AMQPValue::FieldTable(table) => {
            let pairs = table.into_iter().map(|(name, value)| (name.to_string(), json(value, depth + 1)));
            Value::Object(pairs.collect::<Map<_, _>>())
        }
        AMQPValue::DecimalValue(decimal) => format!("{}e-{}", decimal.value, decimal.scale).into(),
        value => String::from_utf8_lossy(&plain(value).unwrap_or_default()).into_owned().into(),
    }
}

/// A header table. A name that repeats becomes an array; one that is too long for AMQP is an error.
pub(crate) fn table(headers: Vec<(String, Vec<u8>)>) -> Result<FieldTable, String> {
    let mut values: std::collections::BTreeMap<ShortString, Vec<AMQPValue>> = Default::default();
    for (name, value) in headers {
        let name_bytes = name.len();
        let name = ShortString::try_new(name)
            .map_err(|_| format!("the name of a header has {name_bytes} bytes, and AMQP allows 255"))?;
        values.entry(name).or_default().push(AMQPValue::LongString(value.into()));
    }
    let mut table = FieldTable::default();
    for (name, mut values) in values {
        let only = if values.len() == 1 { values.pop() } else { None };
        table.insert(name, only.unwrap_or_else(|| AMQPValue::FieldArray(FieldArray::from(values))));
    }
    Ok(table)
}

/// About how many bytes a table takes on the wire, never fewer.
pub(crate) fn table_bytes(table: &FieldTable) -> usize {
    let of = |value: &AMQPValue| match value {
        AMQPValue::LongString(text) => text.len() + 5,
        AMQPValue::FieldArray(array) => {
            array.as_slice().iter().filter_map(AMQPValue::as_long_string).map(|text| text.len() + 5).sum::<usize>() + 5
        }
        _ => 16,
    };
    table.into_iter().map(|(name, value)| name.as_str().len() + 1 + of(value)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_repeats_comes_back_as_often() {
        let pair = |name: &str, value: &[u8]| (name.to_owned(), value.to_vec());
        let table = table(vec![pair("a", b"1"), pair("b", b"\xff"), pair("a", b"2")]).unwrap();
        let back: Vec<_> = table.into_iter().map(|(name, value)| (name.to_string(), values(value))).collect();
        assert_eq!(
            back,
            [("a".to_owned(), vec![b"1".to_vec(), b"2".to_vec()]), ("b".to_owned(), vec![b"\xff".to_vec()])]
        );
    }

    #[test]
    fn foreign_values_become_text() {
        assert_eq!(values(&AMQPValue::LongLongInt(-7)), [b"-7".to_vec()]);
        assert_eq!(values(&AMQPValue::Boolean(true)), [b"true".to_vec()]);
        assert_eq!(number(&AMQPValue::LongLongInt(3)), Some(3));
        assert_eq!(number(&AMQPValue::LongLongInt(-3)), None);
        let mut death = FieldTable::default();
        death.insert("count".into(), AMQPValue::LongLongInt(1));
        let array = AMQPValue::FieldArray(FieldArray::from(vec![AMQPValue::FieldTable(death)]));
        assert_eq!(values(&array), [br#"[{"count":"1"}]"#.to_vec()]);
    }

    #[test]
    fn endless_nesting_ends() {
        let mut value = AMQPValue::Void;
        for _ in 0..1000 {
            value = AMQPValue::FieldArray(FieldArray::from(vec![value]));
        }
        assert!(values(&value)[0].len() < 100);
    }

    #[test]
    fn a_long_name_is_refused() {
        assert!(table(vec![("x".repeat(256), Vec::new())]).is_err());
    }
}
