//! Deliberate bugs, each at the mechanism that it breaks, so that tests can prove that they notice.
//!
//! Without the `planted-bugs` feature [`is`] is a constant `false` and the branches vanish. With it, the bugs named in
//! `ONCEBOX_PLANTED` (separated by commas) are alive.

/// Whether bugs can be planted in this build.
pub const ARE_BUILT_IN: bool = cfg!(feature = "planted-bugs");

/// Whether the bug of this name is planted in this process.
#[cfg(feature = "planted-bugs")]
pub fn is(name: &str) -> bool {
    use std::sync::OnceLock;
    static PLANTED: OnceLock<Vec<String>> = OnceLock::new();
    let planted = PLANTED
        .get_or_init(|| std::env::var("ONCEBOX_PLANTED").unwrap_or_default().split(',').map(str::to_owned).collect());
    planted.iter().any(|planted| planted == name)
}

/// Whether the bug of this name is planted in this process: never, in this build.
#[cfg(not(feature = "planted-bugs"))]
#[inline(always)]
pub const fn is(_name: &str) -> bool {
    false
}
