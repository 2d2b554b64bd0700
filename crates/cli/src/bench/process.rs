//! What this process takes of the machine.

/// Memory in use now, in KiB. `None` where the system does not tell.
pub(super) fn resident_kib() -> Option<u64> {
    status("VmRSS:")
}

/// The most that was ever in use.
pub(super) fn peak_kib() -> Option<u64> {
    status("VmHWM:")
}

pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// A line of Linux's own account of a process: `VmRSS:     12345 kB`.
fn status(name: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}
