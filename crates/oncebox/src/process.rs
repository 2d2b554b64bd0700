//! Which process this is.

/// How people find this process: `host/pid`.
pub(crate) fn label() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok().or_else(|| std::env::var("HOSTNAME").ok());
    let host = host.as_deref().map(str::trim).filter(|host| !host.is_empty()).unwrap_or("host");
    format!("{host}/{}", std::process::id())
}
