//! The verdict: the business table against what was sent. Nothing that Oncebox counted goes into it.

use std::collections::HashMap;

use anyhow::Context;
use serde::Serialize;

use super::feed::Feed;
use super::fleet::Tally;
use super::shop::Shop;

/// What a run came to.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Verdict {
    messages: u64,
    deliveries: u64,
    duplicates: u64,
    crashes: u64,
    effects: u64,
    lost: u64,
    doubled: u64,
    /// Kills by crash point.
    killed_at: std::collections::BTreeMap<String, u64>,
}

impl Verdict {
    pub(super) async fn count(shop: &Shop, feed: &Feed, tally: Tally) -> sqlx::Result<Self> {
        let expected = feed.expected();
        let rows = shop.effects().await?;
        let (lost, doubled) = judge(&expected, &rows);
        let messages = expected.len() as u64;
        Ok(Self {
            messages,
            deliveries: tally.deliveries,
            duplicates: tally.deliveries.saturating_sub(messages),
            crashes: tally.crashes,
            effects: rows.len() as u64,
            lost,
            doubled,
            killed_at: tally.killed_at.into_iter().collect(),
        })
    }

    pub(super) fn is_good(&self) -> bool {
        self.lost == 0 && self.doubled == 0
    }

    #[allow(clippy::print_stdout, reason = "this is the data that the command is for")]
    pub(super) fn print(&self, json: bool) -> anyhow::Result<()> {
        if json {
            println!("{}", serde_json::to_string(self).context("cannot write the verdict")?);
            return Ok(());
        }
        let Self { messages, deliveries, crashes, effects, lost, doubled, .. } = self;
        println!(
            "{messages} messages · {deliveries} deliveries · {crashes} crashes · {effects} effects · {lost} lost · \
             {doubled} doubled"
        );
        Ok(())
    }
}

/// Messages with no effect, and effects too many: repeated, unknown, or with another amount than was sent.
fn judge(expected: &HashMap<&str, i64>, rows: &[(String, i64)]) -> (u64, u64) {
    let mut seen: HashMap<&str, u64> = HashMap::new();
    let mut doubled = 0;
    for (payment, amount) in rows {
        if expected.get(payment.as_str()) == Some(amount) {
            *seen.entry(payment).or_default() += 1;
        } else {
            doubled += 1;
        }
    }
    let lost = expected.keys().filter(|payment| !seen.contains_key(*payment)).count() as u64;
    doubled += seen.values().map(|times| times - 1).sum::<u64>();
    (lost, doubled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_judge_sees_what_is_lost_doubled_and_wrong() {
        let expected = HashMap::from([("a", 1), ("b", 2), ("c", 3)]);
        let rows = |rows: &[(&str, i64)]| rows.iter().map(|(p, a)| (p.to_string(), *a)).collect::<Vec<_>>();
        assert_eq!(judge(&expected, &rows(&[("a", 1), ("b", 2), ("c", 3)])), (0, 0));
        assert_eq!(judge(&expected, &rows(&[("a", 1), ("a", 1), ("a", 1)])), (2, 2));
        assert_eq!(judge(&expected, &rows(&[("a", 1), ("b", 9), ("c", 3)])), (1, 1));
        assert_eq!(judge(&expected, &rows(&[("a", 1), ("b", 2), ("c", 3), ("x", 1)])), (0, 1));
    }
}
