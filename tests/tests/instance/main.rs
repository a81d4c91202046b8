//! Who is working, and who is presumed gone.

mod evict;
mod hang;
mod life;

/// A lease short enough to test evictions without waiting.
const SHORT: &[(&str, &str)] = &[
    ("postroom.instance_lease", "1s"),
    ("postroom.heartbeat", "300ms"),
];
