//! What filters mean, what is wrong with those that mean nothing, and that they survive being written out.

use oncebox_core::parked::Cause;
use oncebox_core::quarantine::{ParkedRow, ParkedState};
use oncebox_core::{Class, ConsumerId, Fingerprinter, Key, Message, Timestamp};
use proptest::prelude::*;

use super::field::{Field, NumberField, Since, TextField};
use super::number::Number;
use super::*;

fn row(payload: &str) -> ParkedRow {
    let parked = Timestamp::from_second(1_000_000).unwrap();
    let mut message = Message::received("payment.received", payload.to_owned().into(), parked);
    message.headers.add("tenant", "acme").unwrap();
    let cause = Cause::new(Some(Class::Permanent), "payment.received", "card declined");
    let fingerprint = Fingerprinter::default().fingerprint(&message);
    let key = Key::id("order-7").unwrap();
    let mut row =
        ParkedRow::new(4, ConsumerId(1), key, fingerprint, message, ParkedState::Dead, cause, (parked, parked));
    row.class = Some(Class::Permanent);
    row.reason = "Card declined by the bank".to_owned();
    row.attempts = 3;
    row
}

fn matches(filter: &str, payload: &str) -> bool {
    let filter = Filter::parse(filter).unwrap_or_else(|error| panic!("{filter}: {error}"));
    let row = row(payload);
    filter.matches(&Subject::new(&row, Timestamp::from_second(1_000_000 + 7200).unwrap()))
}

#[test]
fn each_field_is_compared_in_its_own_way() {
    let payload = r#"{"amount":100,"exact":123456789012345678.91,"huge":1e999999999,"big":9007199254740993,"ok":true,"gone":null,"card":{"no":"4 2"},"items":[{"sku":"a"}]}"#;
    let yes = [
        "all",
        "class = permanent",
        "class != transient",
        "state = dead",
        "type = payment.*",
        "type = *.received",
        "type = pay*ent*ed",
        "type = \"payment.received\"",
        "cause ~ DECLINED",
        "group ~ declined",
        "key = order-7",
        "header.tenant = acme",
        "header.Tenant",
        "attempts >= 3 and row = 4 and size > 10",
        "age > 1h59m and age <= 2h and made >= 7200s",
        "not note and not version and note != x",
        "payload.amount >= 100 and payload.amount < 100.5",
        "payload.amount = 1e2",
        "payload.big = 9007199254740993 and payload.big != 9007199254740992",
        "payload.exact = 123456789012345678.91 and payload.exact < 123456789012345678.92",
        "payload.exact = \"123456789012345678.91\" and payload.huge > 1e400",
        "payload.ok = true and payload.ok",
        "payload.gone = null and payload.never = null and not payload.gone",
        "payload.card.no = \"4 2\"",
        "payload.\"card\".\"no\" ~ 2",
        "payload.items.0.sku = a",
        "payload.amount = \"100\"",
        "payload.nothing != 3",
        "class = transient or type = payment.received and attempts = 3",
        "NOT (class = transient OR attempts < 3)",
    ];
    for filter in yes {
        assert!(matches(filter, payload), "{filter}");
    }
    let no = [
        "class = unknown",
        "type = payment",
        "type = \"payment.*\"",
        "type = payment.*x",
        "type = *ved*payment*",
        "note = x",
        "note ~ x",
        "version < 100",
        "age > 2h",
        "payload.amount > 100",
        "payload.exact = 123456789012345678.92",
        "payload.exact = 123456789012345680",
        "payload.amount ~ 3",
        "payload.card = x",
        "payload.amount.x = 1",
        "(class = transient or type = payment.received) and attempts = 4",
    ];
    for filter in no {
        assert!(!matches(filter, payload), "{filter}");
    }
    let deep = format!("{{\"amount\":100,\"deep\":{}{}}}", "[".repeat(10_000), "]".repeat(10_000));
    assert!(matches("payload.amount = 100 and payload.deep.0", &deep));
    assert!(!matches("payload.amount = 100", "not json at all"));
    assert!(matches("not payload.amount", "not json at all"));
}

#[test]
fn a_mistake_is_told_with_its_place_and_the_nearest_name() {
    let cases = [
        ("", 1, "it is empty; write `all`"),
        ("tipe = x", 1, "there is no field `tipe`; did you mean `type`?"),
        ("class = permanant", 9, "did you mean `permanent`?"),
        ("class > permanent", 7, "compared with `=` and `!=` only"),
        ("age > soon", 7, "expected a length of time for `age`"),
        ("age = 2h", 5, "`<`, `<=`, `>` and `>=`"),
        ("attempts > many", 12, "expected a whole number for `attempts`, found `many`"),
        ("type =", 7, "expected a text, and it ends here"),
        ("type = a b", 10, "expected `and`, `or` or the end, found `b`"),
        ("(type = a", 10, "expected `and`, `or` or `)`, and it ends here"),
        ("type = a)", 9, "this `)` closes nothing"),
        ("type = \"a", 8, "this quote is never closed"),
        ("type = a and", 13, "expected a field"),
        ("type = a and or", 14, "expected a field"),
        ("payload > 3", 1, "`payload` needs a name after a dot"),
        ("payload.a > b", 11, "`>` compares numbers"),
        ("! note", 1, "write `not`"),
        ("ä = x", 1, "there is no field"),
        ("payload..a = 1", 1, "there is no field"),
    ];
    for (filter, column, says) in cases {
        let error = Filter::parse(filter).expect_err(filter);
        assert_eq!(error.column(), column, "{filter}: {error}");
        assert!(error.to_string().contains(says), "{filter}: {error}");
    }
}

#[test]
fn a_filter_has_bounds() {
    assert!(Filter::parse(&"x".repeat(FILTER_BYTES_MAX + 1)).unwrap_err().to_string().contains("at most 4096"));
    let deep = format!("{}note{}", "(".repeat(1000), ")".repeat(1000));
    assert!(Filter::parse(&deep).unwrap_err().to_string().contains("nested"));
    let long = vec!["note"; 500].join(" or ");
    assert!(Filter::parse(&long).is_ok());
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z]{1,6}", "[ -~äöü*]{0,8}", Just("true".to_owned()), Just("12".to_owned()), Just("and".to_owned())]
}

fn equal() -> impl Strategy<Value = Equal> {
    prop_oneof![Just(Equal::Is), Just(Equal::IsNot)]
}

fn order() -> impl Strategy<Value = Order> {
    use Order::{Is, IsNot, Less, LessOrIs, More, MoreOrIs};
    prop::sample::select(vec![Is, IsNot, Less, LessOrIs, More, MoreOrIs])
}

fn text_test() -> impl Strategy<Value = TextTest> {
    let glob = prop::collection::vec("[a-z0-9.:-]{0,4}", 2..4);
    prop_oneof![
        (equal(), text()).prop_map(|(equal, text)| TextTest::Equal(equal, Pattern::Literal(text))),
        (equal(), glob).prop_map(|(equal, parts)| TextTest::Equal(equal, Pattern::Glob(parts))),
        text().prop_map(TextTest::Contains),
    ]
}

fn text_field() -> impl Strategy<Value = TextField> {
    use TextField::{Cause, Header, Id, Key, Note, Order, Reason, Source, Type};
    prop_oneof![
        prop::sample::select(vec![Type, Cause, Key, Order, Id, Source, Reason, Note]),
        "[a-zA-Z-]{1,8}".prop_map(Header),
    ]
}

fn path() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(prop_oneof!["[a-z_0-9]{1,5}", "[ -~ä]{1,5}"], 1..4)
}

fn term() -> impl Strategy<Value = Term> {
    use NumberField::{Attempts, Replay, Row, Size, Version};
    let numbers = prop::sample::select(vec![Attempts, Replay, Row, Size, Version]);
    let orders = prop::sample::select(vec![Order::Less, Order::LessOrIs, Order::More, Order::MoreOrIs]);
    let class = prop::sample::select(vec![Class::Transient, Class::Permanent, Class::Unknown, Class::Rejected]);
    let since = prop::sample::select(vec![Since::Parked, Since::Made]);
    let json = prop_oneof![
        any::<i64>().prop_map(|number| number.to_string()),
        any::<u64>().prop_map(|number| number.to_string()),
        "-?(0|[1-9][0-9]{0,25})([.][0-9]{1,25})?([eE]-?[0-9]{1,12})?",
    ]
    .prop_map(|text| Number::read(&text).unwrap());
    let payload = prop_oneof![
        text_test().prop_map(PayloadTest::Text),
        (order(), json).prop_map(|(order, number)| PayloadTest::Number(order, number)),
        (equal(), any::<bool>()).prop_map(|(equal, value)| PayloadTest::Bool(equal, value)),
        equal().prop_map(PayloadTest::Null),
    ];
    prop_oneof![
        text_field().prop_map(|field| Term::Present(Field::Text(field))),
        path().prop_map(|path| Term::Present(Field::Payload(path))),
        (equal(), class).prop_map(|(equal, class)| Term::Class(equal, class)),
        (equal(), prop::sample::select(ParkedState::ALL.to_vec())).prop_map(|(equal, s)| Term::State(equal, s)),
        (text_field(), text_test()).prop_map(|(field, test)| Term::Text(field, test)),
        (numbers, order(), any::<i64>()).prop_map(|(field, order, n)| Term::Number(field, order, n)),
        (since, orders, 0..u64::MAX / 8).prop_map(|(s, o, ms)| Term::Age(s, o, Duration::from_millis(ms))),
        (path(), payload).prop_map(|(path, test)| Term::Payload(path, test)),
    ]
}

fn expr() -> impl Strategy<Value = Expr> {
    let leaf = prop_oneof![8 => term().prop_map(Expr::Term), 1 => Just(Expr::All)];
    leaf.prop_recursive(5, 24, 2, |inner| {
        let pair = || (inner.clone(), inner.clone()).prop_map(|(a, b)| (Box::new(a), Box::new(b)));
        prop_oneof![
            pair().prop_map(|(a, b)| Expr::And(a, b)),
            pair().prop_map(|(a, b)| Expr::Or(a, b)),
            inner.prop_map(|inner| Expr::Not(Box::new(inner))),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_written_out_reads_the_same(expr in expr()) {
        let text = expr.to_string();
        prop_assume!(text.len() <= FILTER_BYTES_MAX);
        prop_assert_eq!(Filter::parse(&text).map(|filter| filter.0), Ok(expr), "{}", text);
    }

    #[test]
    fn no_text_breaks_the_parser(text in "\\PC{0,60}") {
        if let Ok(filter) = Filter::parse(&text) {
            prop_assert_eq!(Filter::parse(&filter.to_string()), Ok(filter));
        }
    }

    #[test]
    fn words_that_look_like_a_filter_do_not_break_it(words in prop::collection::vec(
        prop::sample::select(vec!["and", "or", "not", "(", ")", "type", "=", "~", "<", "payload.a", "3", "\"x\"", "age", "2h", "*"]), 0..12,
    )) {
        if let Ok(filter) = Filter::parse(&words.join(" ")) {
            prop_assert_eq!(Filter::parse(&filter.to_string()), Ok(filter));
        }
    }
}
