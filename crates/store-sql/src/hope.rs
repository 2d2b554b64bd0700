//! Whether to expect that all keys of a batch are free.

/// Whether to expect that all keys of a batch are free, learned from the batches before.
///
/// Mostly they are, and then a plain insert claims them in half the time. Where one is not, the transaction starts over:
/// work is wasted, rows die, and the server logs an error. So after a disappointment it stays careful for many batches, and
/// for twice as many after each further one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hope {
    /// Claims to be careful with, from here on.
    careful: u32,
    /// How many they were the last time.
    lesson: u32,
}

/// Smaller batches gain less than they risk.
const KEYS_MIN: usize = 16;
/// Careful claims after a first disappointment.
const LESSON_FIRST: u32 = 256;
/// The most careful claims after one.
const LESSON_MAX: u32 = 65_536;

impl Hope {
    /// Whether to try it with this many keys.
    pub(crate) fn try_now(&mut self, keys: usize) -> bool {
        if keys < KEYS_MIN {
            return false;
        }
        self.careful = match self.careful {
            0 => return true,
            careful => careful - 1,
        };
        false
    }

    /// Whether they were all free.
    pub(crate) fn learn(&mut self, all_free: bool) {
        if all_free {
            // Forgotten slowly: the next one is probably not far.
            self.lesson -= self.lesson.div_ceil(64);
        } else {
            self.lesson = (self.lesson * 2).clamp(LESSON_FIRST, LESSON_MAX);
            self.careful = self.lesson;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_duplicates_are_common_it_is_hardly_ever_tried() {
        let mut hope = Hope::default();
        let mut tried = 0;
        for _ in 0..1_000_000 {
            if hope.try_now(100) {
                tried += 1;
                hope.learn(false);
            }
        }
        assert!(tried < 30, "{tried} of a million");
    }

    #[test]
    fn after_a_rare_duplicate_it_is_soon_tried_again() {
        let mut hope = Hope::default();
        assert!(hope.try_now(100));
        hope.learn(false);
        let careful = std::iter::repeat_with(|| hope.try_now(100)).take_while(|tried| !tried).count();
        assert_eq!(careful, 256);
        for _ in 0..1_000 {
            hope.learn(true);
        }
        assert!(hope.try_now(100) && !hope.try_now(1));
        hope.learn(false);
        assert_eq!(hope.careful, 256, "forgotten by now");
    }
}
