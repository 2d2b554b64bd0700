//! The properties of a message, as they lie in a content header:
//!
//! ```text
//!  class 2 · weight 2 · body size 8 · flags 2 · those properties whose flag is set, in order
//! ```

use lapin::protocol::basic::parse_properties;
use lapin::types::FieldTable;

use super::{Kept, Lost};

/// Marks a message that something was taken out of, with the number under which that is kept.
pub(super) const MARK: &str = "oncebox-unread";

/// What the name of a property that could not be read is put behind.
pub(super) const UNREADABLE: &str = "oncebox-unreadable-";

/// Tables and arrays in each other that the client can read on its stack with ease. Brokers write two.
const DEPTH_MAX: usize = 32;

/// Everyone takes frames of this size.
const FRAME_MIN: usize = 4096 - 8;

/// Before the flags.
const PREFIX: usize = 12;
const BASIC: [u8; 2] = [0, 60];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Text,
    Table,
    Fixed(usize),
}

/// In the order of their flags, from the highest bit down.
const PROPERTIES: [(&str, Shape); 14] = [
    ("content-type", Shape::Text),
    ("content-encoding", Shape::Text),
    ("headers", Shape::Table),
    ("delivery-mode", Shape::Fixed(1)),
    ("priority", Shape::Fixed(1)),
    ("correlation-id", Shape::Text),
    ("reply-to", Shape::Text),
    ("expiration", Shape::Text),
    ("message-id", Shape::Text),
    ("timestamp", Shape::Fixed(8)),
    ("type", Shape::Text),
    ("user-id", Shape::Text),
    ("app-id", Shape::Text),
    ("cluster-id", Shape::Text),
];

/// The place of `headers` in that list.
const HEADERS: usize = 2;

fn flag(place: usize) -> u16 {
    1 << (15 - place)
}

/// The payload of a content header without what the client cannot read, which is handed to `keep` behind what was `lost`
/// before, and with the number that it answers. So are headers without which it is no longer than `bytes_max`. `None`:
/// nothing was lost, and the client can read all of it.
pub(super) fn fit(payload: &[u8], lost: Lost, bytes_max: usize, keep: impl FnOnce(Kept) -> i64) -> Option<Vec<u8>> {
    let (prefix, rest) = payload.split_at_checked(PREFIX)?;
    let (flags, list) = rest.split_first_chunk::<2>()?;
    let flags = u16::from_be_bytes(*flags);
    // Another class, or more flags than there are properties: the client knows as little of it as we do.
    if prefix[..2] != BASIC || flags & 0b11 != 0 {
        return None;
    }
    let mut sorted = sort(flags, list);
    let mut lost = lost;
    lost.append(&mut sorted.lost);
    if lost.is_empty() && payload.len() <= bytes_max {
        return None;
    }
    let mut aside = Vec::new();
    if sorted.payload(prefix, 0).len() > payload.len().max(FRAME_MIN).min(bytes_max) {
        // The mark alone always has room: the other properties are eleven texts of 255 bytes at most.
        aside = std::mem::take(&mut sorted.headers);
    }
    Some(sorted.payload(prefix, keep(Kept { lost, aside })))
}

/// The headers in a table that was put aside. All of it was found readable then.
pub(super) fn headers_of(aside: &[u8]) -> Option<FieldTable> {
    let length = u32::try_from(aside.len()).ok()?;
    let list = [&flag(HEADERS).to_be_bytes()[..], &length.to_be_bytes(), aside].concat();
    let (_, properties) = parse_properties(list.as_slice()).ok()?;
    properties.headers().clone()
}

/// Properties that can be read, and those that can't.
#[derive(Debug, Default)]
struct Sorted {
    flags: u16,
    /// What stands before the headers, and after them.
    before: Vec<u8>,
    after: Vec<u8>,
    headers: Vec<u8>,
    lost: Lost,
}

impl Sorted {
    fn payload(&self, prefix: &[u8], number: i64) -> Vec<u8> {
        let mut table = self.headers.clone();
        table.push(MARK.len() as u8);
        table.extend_from_slice(MARK.as_bytes());
        table.push(b'l');
        table.extend_from_slice(&number.to_be_bytes());
        let mut payload = prefix.to_vec();
        payload.extend_from_slice(&(self.flags | flag(HEADERS)).to_be_bytes());
        payload.extend_from_slice(&self.before);
        // Shorter than the frame that it comes from, or than the shortest.
        payload.extend_from_slice(&u32::try_from(table.len()).unwrap_or(u32::MAX).to_be_bytes());
        payload.append(&mut table);
        payload.extend_from_slice(&self.after);
        payload
    }

    fn lose(&mut self, what: &str, bytes: &[u8]) {
        self.lost.push((format!("{UNREADABLE}{what}"), bytes.to_vec()));
    }
}

fn sort(flags: u16, list: &[u8]) -> Sorted {
    let mut sorted = Sorted { flags, ..Sorted::default() };
    let mut reader = Reader(list);
    for (place, (name, shape)) in PROPERTIES.iter().enumerate().filter(|(place, _)| flags & flag(*place) != 0) {
        let start = reader.0;
        let read = match shape {
            Shape::Text => reader.short(),
            Shape::Table => reader.long(),
            Shape::Fixed(bytes) => reader.take(*bytes),
        };
        let Some(bytes) = read else {
            // Where the next one begins is not known either.
            sorted.flags &= !(u16::MAX >> place);
            sorted.lose("properties", start);
            return sorted;
        };
        if *shape == Shape::Table {
            headers(bytes, &mut sorted);
        } else if *shape == Shape::Text && std::str::from_utf8(bytes).is_err() {
            sorted.flags &= !flag(place);
            sorted.lose(name, bytes);
        } else {
            let side = if place < HEADERS { &mut sorted.before } else { &mut sorted.after };
            side.extend_from_slice(&start[..start.len() - reader.0.len()]);
        }
    }
    if !reader.0.is_empty() {
        sorted.lose("properties", reader.0);
    }
    sorted
}

/// Sorts the entries of the header table.
fn headers(table: &[u8], sorted: &mut Sorted) {
    let mut reader = Reader(table);
    while !reader.0.is_empty() {
        let entry = reader.0;
        let (Some(name), value) = (reader.short(), reader.0) else { return sorted.lose("headers", entry) };
        if reader.skip_value().is_none() {
            return sorted.lose("headers", entry);
        }
        let value = &value[..value.len() - reader.0.len()];
        let entry = &entry[..entry.len() - reader.0.len()];
        let is_name = std::str::from_utf8(name).is_ok_and(|name| name != MARK);
        if is_name && is_readable(value) {
            sorted.headers.extend_from_slice(entry);
        } else {
            sorted.lose("header", entry);
        }
    }
}

fn is_readable(value: &[u8]) -> bool {
    let mut reader = Reader(value);
    reader.value(DEPTH_MAX).is_some() && reader.0.is_empty()
}

/// Reads from the front; `None` where there is too little, or something that the client does not know.
pub(super) struct Reader<'b>(pub(super) &'b [u8]);

impl<'b> Reader<'b> {
    pub(super) fn take(&mut self, count: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn short(&mut self) -> Option<&'b [u8]> {
        let (&length, rest) = self.0.split_first()?;
        let (taken, rest) = rest.split_at_checked(length.into())?;
        self.0 = rest;
        Some(taken)
    }

    fn long(&mut self) -> Option<&'b [u8]> {
        let (length, rest) = self.0.split_first_chunk::<4>()?;
        let (taken, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        self.0 = rest;
        Some(taken)
    }

    /// A value with whatever is in it. Answers its type, and its content if it holds others.
    fn skip_value(&mut self) -> Option<(u8, &'b [u8])> {
        let [kind] = *self.take(1)? else { return None };
        let fixed = match kind {
            b'V' => 0,
            b't' | b'b' | b'B' => 1,
            b's' | b'U' | b'u' => 2,
            b'I' | b'i' | b'f' => 4,
            b'D' => 5,
            b'l' | b'L' | b'd' | b'T' => 8,
            b'S' | b'x' | b'A' | b'F' => return Some((kind, self.long()?)),
            _ => return None,
        };
        self.take(fixed)?;
        Some((kind, &[]))
    }

    fn value(&mut self, depth: usize) -> Option<()> {
        let (kind, content) = self.skip_value()?;
        if !matches!(kind, b'A' | b'F') {
            return Some(());
        }
        let mut inside = Reader(content);
        while !inside.0.is_empty() {
            if kind == b'F' {
                std::str::from_utf8(inside.short()?).ok()?;
            }
            inside.value(depth.checked_sub(1)?)?;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use lapin::BasicProperties;
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const BODY: [u8; PREFIX] = [0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3];

    fn payload(flags: u16, list: &[u8]) -> Vec<u8> {
        [&BODY[..], &flags.to_be_bytes(), list].concat()
    }

    /// As the client reads it.
    fn read(payload: &[u8]) -> Option<BasicProperties> {
        let (rest, properties) = parse_properties(&payload[PREFIX..]).ok()?;
        rest.is_empty().then_some(properties)
    }

    fn table(entries: &[(&[u8], Vec<u8>)]) -> Vec<u8> {
        let entries: Vec<u8> =
            entries.iter().flat_map(|(name, value)| [&[name.len() as u8][..], name, value].concat()).collect();
        [&(entries.len() as u32).to_be_bytes()[..], &entries].concat()
    }

    fn nested(levels: usize) -> Vec<u8> {
        (0..levels).fold(b"V".to_vec(), |inner, _| [&b"A"[..], &(inner.len() as u32).to_be_bytes(), &inner].concat())
    }

    fn fitted(payload: &[u8]) -> Option<(BasicProperties, Lost)> {
        fitted_to(payload, usize::MAX).map(|(properties, kept)| (properties, kept.lost))
    }

    fn fitted_to(payload: &[u8], bytes_max: usize) -> Option<(BasicProperties, Kept)> {
        let mut kept = Kept::default();
        let keep = |what| {
            kept = what;
            7
        };
        let fitted = fit(payload, Lost::new(), bytes_max, keep)?;
        assert!(fitted.len() <= payload.len().max(FRAME_MIN).min(bytes_max));
        Some((read(&fitted).expect("the client reads it"), kept))
    }

    #[test]
    fn what_can_be_read_is_left_alone() {
        let plain = table(&[(b"a", b"I\x00\x00\x00\x07".to_vec()), (b"deep", nested(DEPTH_MAX))]);
        let list = [&b"\x04text"[..], &plain, b"\x02\x02id"].concat();
        let flags = flag(0) | flag(HEADERS) | flag(3) | flag(8);
        assert!(read(&payload(flags, &list)).is_some());
        assert_eq!(fitted(&payload(flags, &list)), None);
        assert_eq!(fitted(&payload(0, b"")), None);
    }

    #[test]
    fn only_what_cannot_be_read_is_taken_out() {
        let deep = nested(20_000);
        let entries: [(&[u8], Vec<u8>); 5] = [
            (b"first", b"t\x01".to_vec()),
            (b"deep", deep.clone()),
            (b"\xff", b"V".to_vec()),
            (MARK.as_bytes(), b"l\x00\x00\x00\x00\x00\x00\x00\x01".to_vec()),
            (b"last", b"t\x00".to_vec()),
        ];
        let list = [&table(&entries)[..], b"\x02\xc3\x28", b"\x02id"].concat();
        let (properties, lost) = fitted(&payload(flag(HEADERS) | flag(5) | flag(8), &list)).unwrap();
        assert_eq!(properties.message_id().as_ref().unwrap().as_str(), "id");
        assert_eq!(*properties.correlation_id(), None);
        let names: Vec<&str> =
            properties.headers().as_ref().unwrap().inner().keys().map(|name| name.as_str()).collect();
        assert_eq!(names, ["first", "last", MARK]);
        let header = format!("{UNREADABLE}header");
        assert_eq!(lost[0], (header.clone(), [&b"\x04deep"[..], &deep].concat()));
        assert_eq!(lost[1], (header.clone(), b"\x01\xffV".to_vec()));
        assert_eq!(lost[2].0, header);
        assert_eq!(lost[3], (format!("{UNREADABLE}correlation-id"), b"\xc3\x28".to_vec()));
        assert_eq!(lost.len(), 4);
    }

    #[test]
    fn a_frame_that_is_full_gets_no_larger() {
        let entries: [(&[u8], Vec<u8>); 2] = [
            (b"large", [&b"S"[..], &130_000_u32.to_be_bytes(), &vec![b'x'; 130_000]].concat()),
            (b"\xff", b"V".to_vec()),
        ];
        let list = [&table(&entries)[..], b"\x02id"].concat();
        let (properties, kept) = fitted_to(&payload(flag(HEADERS) | flag(8), &list), usize::MAX).unwrap();
        assert_eq!(properties.message_id().as_ref().unwrap().as_str(), "id");
        assert_eq!(kept.lost, [(format!("{UNREADABLE}header"), b"\x01\xffV".to_vec())]);
        assert_eq!(headers_of(&kept.aside).unwrap().inner().len(), 1);
    }

    /// At every length around the bound, with as much in the other properties as they can hold.
    #[test]
    fn headers_are_put_aside_where_they_are_too_long_for_a_frame() {
        let texts = [&[255][..], &[b'x'; 255]].concat();
        for length in 1_000..1_400 {
            let entry = [&b"S"[..], &(length as u32).to_be_bytes(), &vec![b'x'; length]].concat();
            let whole = table(&[(b"large", entry), (b"deep", nested(DEPTH_MAX))]);
            let list = [&texts.repeat(2)[..], &whole, b"\x02\x00", &texts.repeat(4), b"time is8", &texts.repeat(4)];
            let payload = payload(!0b11, &list.concat());
            let sent = read(&payload).unwrap();
            let Some((properties, kept)) = fitted_to(&payload, FRAME_MIN) else {
                assert!(payload.len() <= FRAME_MIN);
                continue;
            };
            assert!(payload.len() > FRAME_MIN && kept.lost.is_empty());
            assert_eq!(headers_of(&kept.aside), *sent.headers());
            assert_eq!(properties.cluster_id(), sent.cluster_id());
        }
    }

    #[test]
    fn a_list_that_ends_too_soon_is_kept_up_to_there() {
        let (properties, lost) = fitted(&payload(flag(0) | flag(5) | flag(8), b"\x04text\x09short")).unwrap();
        assert_eq!(properties.content_type().as_ref().unwrap().as_str(), "text");
        assert_eq!(lost, [(format!("{UNREADABLE}properties"), b"\x09short".to_vec())]);
        let (_, lost) = fitted(&payload(flag(0), b"\x04text and more")).unwrap();
        assert_eq!(lost, [(format!("{UNREADABLE}properties"), b" and more".to_vec())]);
    }

    /// Values of all types, some of which are none.
    fn value() -> impl Strategy<Value = Vec<u8>> {
        let leaf = prop_oneof![
            Just(b"V".to_vec()),
            vec(any::<u8>(), 1..10).prop_map(|bytes| [&b"S"[..], &(bytes.len() as u32).to_be_bytes(), &bytes].concat()),
            (proptest::sample::select(b"tbBsuUIiflLdTDxzS".to_vec()), vec(any::<u8>(), 0..9))
                .prop_map(|(kind, bytes)| [&[kind][..], &bytes].concat()),
        ];
        leaf.prop_recursive(4, 16, 4, |inner| {
            prop_oneof![
                vec(inner.clone(), 0..4).prop_map(|values| {
                    let inside = values.concat();
                    [&b"A"[..], &(inside.len() as u32).to_be_bytes(), &inside].concat()
                }),
                vec((vec(any::<u8>(), 0..4), inner), 0..4).prop_map(|entries| {
                    let entries: Vec<(&[u8], Vec<u8>)> =
                        entries.iter().map(|(name, value)| (name.as_slice(), value.clone())).collect();
                    [&b"F"[..], &table(&entries)].concat()
                }),
            ]
        })
    }

    proptest! {
        /// Whatever comes, the client reads what is left of it, and is left alone with what it reads.
        #[test]
        fn the_client_reads_what_is_let_through(
            flags in any::<u16>(),
            entries in vec((vec(any::<u8>(), 0..4), value()), 0..4),
            texts in vec(vec(any::<u8>(), 0..4), 13),
            cut in proptest::option::of(0..200_usize),
        ) {
            let flags = flags & !0b11;
            let entries: Vec<(&[u8], Vec<u8>)> =
                entries.iter().map(|(name, value)| (name.as_slice(), value.clone())).collect();
            let mut list = Vec::new();
            for (place, (_, shape)) in PROPERTIES.iter().enumerate().filter(|(place, _)| flags & flag(*place) != 0) {
                match shape {
                    Shape::Text => list.extend([&[texts[place % 13].len() as u8][..], &texts[place % 13]].concat()),
                    Shape::Table => list.extend(table(&entries)),
                    Shape::Fixed(bytes) => list.extend(std::iter::repeat_n(1, *bytes)),
                }
            }
            list.truncate(cut.unwrap_or(usize::MAX));
            let payload = payload(flags, &list);
            match fitted(&payload) {
                None => prop_assert!(read(&payload).is_some()),
                Some((_, lost)) => prop_assert!(!lost.is_empty()),
            }
        }
    }
}
