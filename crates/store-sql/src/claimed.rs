//! The keys that a transaction claimed.

use oncebox_core::key::Key;
use oncebox_core::store::ConsumerId;

/// The keys that a transaction claimed: the only ones whose records it may touch.
///
/// Every claim adds to it and few transactions ask it anything, so it is a list that is sorted when it is first asked.
#[derive(Debug, Default)]
pub(crate) struct Claimed {
    keys: Vec<(ConsumerId, Key)>,
    sorted: bool,
}

impl Claimed {
    pub(crate) fn add(&mut self, keys: impl IntoIterator<Item = (ConsumerId, Key)>) {
        self.keys.extend(keys);
        self.sorted = false;
    }

    pub(crate) fn contains(&mut self, consumer: ConsumerId, key: &Key) -> bool {
        self.find(consumer, key).is_some()
    }

    /// Whether it was there.
    pub(crate) fn remove(&mut self, consumer: ConsumerId, key: &Key) -> bool {
        self.find(consumer, key).map(|at| self.keys.remove(at)).is_some()
    }

    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Key> {
        self.keys.iter().map(|(_, key)| key)
    }

    fn find(&mut self, consumer: ConsumerId, key: &Key) -> Option<usize> {
        if !self.sorted {
            self.keys.sort_unstable();
            self.sorted = true;
        }
        self.keys.binary_search_by(|(c, k)| (c, k).cmp(&(&consumer, key))).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_is_found_until_it_is_removed() {
        let key = |id: &str| Key::id(id).unwrap();
        let mut claimed = Claimed::default();
        claimed.add([(ConsumerId(2), key("b")), (ConsumerId(1), key("c"))]);
        assert!(claimed.contains(ConsumerId(2), &key("b")) && !claimed.contains(ConsumerId(1), &key("b")));
        claimed.add([(ConsumerId(1), key("a"))]);
        assert!(claimed.contains(ConsumerId(1), &key("a")));
        assert!(claimed.remove(ConsumerId(1), &key("c")) && !claimed.remove(ConsumerId(1), &key("c")));
        assert_eq!(claimed.len(), 2);
    }
}
