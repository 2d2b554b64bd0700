//! Cases that could not run, told to whoever started the tests.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

/// Notes that a test did not run for lack of a server: appends its name as one line to the file that
/// `ONCEBOX_SKIP_LOG` names. Without that variable nobody asked.
///
/// # Panics
///
/// If the file can't be written: a skipped test that nobody hears of looks like a passed one.
pub fn skipped(name: &str) {
    let Some(log) = std::env::var_os("ONCEBOX_SKIP_LOG") else { return };
    let log = Path::new(&log);
    note(log, name).unwrap_or_else(|error| panic!("cannot note a skipped test in {}: {error}", log.display()));
}

fn note(log: &Path, name: &str) -> io::Result<()> {
    // One write in append mode: lines of tests that run side by side, in several processes, do not mix.
    OpenOptions::new().create(true).append(true).open(log)?.write_all(format!("{name}\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_skipped_test_is_a_line() {
        let log = std::env::temp_dir().join(format!("oncebox-skip-{}", std::process::id()));
        note(&log, "inbox::one").unwrap();
        note(&log, "inbox::two").unwrap();
        let noted = std::fs::read_to_string(&log).unwrap();
        std::fs::remove_file(&log).unwrap();
        assert_eq!(noted, "inbox::one\ninbox::two\n");
    }
}
