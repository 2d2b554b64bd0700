//! Statements that are swapped for mutants of themselves, so that `scripts/mutants` can ask whether a test notices.
//!
//! Without the `planted-bugs` feature nothing here does anything. With it, a process reads two variables:
//!
//! | variable | names a file |
//! | --- | --- |
//! | `ONCEBOX_SQL_MUTANT` | that holds a statement as it stands in its `.sql` file, a line `-- mutant`, and what runs in its place |
//! | `ONCEBOX_SQL_SEEN` | to which the SHA-256 of every `.sql` file is added whose statement runs in this process |

/// Stands between the original and the mutant in the file of a mutant.
#[cfg(feature = "planted-bugs")]
const MARK: &str = "\n-- mutant\n";

/// The text to run for this `.sql` file: its own, or the mutant's.
#[cfg(feature = "planted-bugs")]
pub fn statement(file: &str) -> &str {
    use std::sync::OnceLock;
    static MUTANT: OnceLock<Option<(String, String)>> = OnceLock::new();
    let mutant = MUTANT.get_or_init(|| {
        let path = std::env::var_os("ONCEBOX_SQL_MUTANT")?;
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let (original, mutant) = text.split_once(MARK)?;
        Some((original.to_owned(), mutant.to_owned()))
    });
    match mutant {
        Some((original, mutant)) if original == file => mutant,
        _ => file,
    }
}

/// The text to run for this `.sql` file: its own, in this build.
#[cfg(not(feature = "planted-bugs"))]
#[inline(always)]
pub const fn statement(file: &str) -> &str {
    file
}

/// Remembers which `.sql` file a statement was made from, for [`used`].
#[cfg(feature = "planted-bugs")]
pub fn made(file: &str, statement: &str) {
    if let Some(seen) = &*SEEN {
        use sha2::Digest;
        let digest = sha2::Sha256::digest(file).iter().map(|byte| format!("{byte:02x}")).collect();
        seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner).insert(statement.to_owned(), digest);
    }
}

/// Remembers which `.sql` file a statement was made from: not in this build.
#[cfg(not(feature = "planted-bugs"))]
#[inline(always)]
pub const fn made(_file: &str, _statement: &str) {}

/// Notes that a statement runs, once for each that was [`made`].
#[cfg(feature = "planted-bugs")]
pub fn used(statement: &str) {
    let Some(seen) = &*SEEN else { return };
    let digest = seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner).remove(statement);
    if let Some(digest) = digest
        && let Some(path) = std::env::var_os("ONCEBOX_SQL_SEEN")
        && let Ok(mut file) = std::fs::OpenOptions::new().create(true).append(true).open(path)
    {
        // One write, so that lines of processes that run side by side stay whole.
        let _ = std::io::Write::write_all(&mut file, format!("{digest}\n").as_bytes());
    }
}

/// Notes that a statement runs: not in this build.
#[cfg(not(feature = "planted-bugs"))]
#[inline(always)]
pub const fn used(_statement: &str) {}

/// The digest of the `.sql` file of each statement that has not run yet.
#[cfg(feature = "planted-bugs")]
static SEEN: std::sync::LazyLock<Option<std::sync::Mutex<std::collections::HashMap<String, String>>>> =
    std::sync::LazyLock::new(|| std::env::var_os("ONCEBOX_SQL_SEEN").map(|_| std::sync::Mutex::default()));
